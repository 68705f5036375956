"""The order in which each stage runs its passes is that of torch.distributed.pipelining's own schedules."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops
from torch.distributed.pipelining.schedules import _Action

from planner.cost.schedules import Pass, PassKind, PipelineShape, stage_orders
from planner.strategy import ScheduleName

KINDS = {"F": PassKind.FORWARD, "B": PassKind.BACKWARD, "I": PassKind.INPUT, "W": PassKind.WEIGHT}
SCHEDULES = {
    "GPipe": ScheduleName.GPIPE,
    "1F1B": ScheduleName.ONE_FORWARD_ONE_BACKWARD,
    "Interleaved1F1B": ScheduleName.INTERLEAVED,
    "LoopedBFS": ScheduleName.BREADTH_FIRST,
    "InterleavedZeroBubble": ScheduleName.ZB_H1,
    "ZBVZeroBubble": ScheduleName.ZB_V,
    "DualPipeV": ScheduleName.DUALPIPE_V,
}
STAGES = (1, 2, 4, 5)
MICRO_BATCHES = (1, 2, 4, 5, 8, 12, 15, 20)


def shapes(schedule: ScheduleName) -> Iterator[PipelineShape]:
    """Yield every small shape that both run."""
    for stages in STAGES:
        for chunks in range(schedule.fewest_chunks, (schedule.most_chunks or 3) + 1):
            for micro_batches in MICRO_BATCHES:
                if schedule is ScheduleName.ONE_FORWARD_ONE_BACKWARD and micro_batches < stages:
                    continue
                if schedule in {ScheduleName.INTERLEAVED, ScheduleName.ZB_H1} and micro_batches % stages:
                    continue
                if schedule is ScheduleName.DUALPIPE_V and micro_batches < 2 * stages:
                    continue
                if schedule is ScheduleName.ZB_H1 and chunks == 1:
                    continue  # what draws torch's orders takes several chunks alone
                yield PipelineShape(
                    schedule=schedule,
                    num_stages=stages,
                    virtual_stages=chunks,
                    num_micro_batches=micro_batches,
                )


def passes(actions: Sequence[_Action | None]) -> Iterator[Pass]:
    """Yield torch's actions as passes; a pair that may overlap is run one after the other."""
    for action in actions:
        if action is None or (action.microbatch_index is None and not action.sub_actions):
            continue  # a bubble, or the reduction of gradients
        if action.sub_actions:
            yield from passes(action.sub_actions)
            continue
        assert action.microbatch_index is not None
        kind = KINDS[action.computation_type.value]
        yield Pass(int(kind), action.stage_index, action.microbatch_index)


@pytest.mark.parametrize("name", SCHEDULES)
def test_stages_run_their_passes_in_the_order_of_torch(name: str) -> None:
    for shape in shapes(SCHEDULES[name]):
        theirs = get_schedule_ops(name, shape.num_stages, shape.num_micro_batches, shape.virtual_stages)
        orders = tuple(tuple(passes(actions)) for actions in theirs)
        if name == "1F1B":
            orders = tuple(map(counted, orders))
        assert stage_orders(shape) == orders, shape


def counted(order: Sequence[Pass]) -> tuple[Pass, ...]:
    """Number the passes of one chunk by kind: torch 2.13 lists the last stage's forward passes from 1."""
    done: Counter[int] = Counter()
    found = []
    for step in order:
        found.append(step._replace(micro_batch=done[step.kind]))
        done[step.kind] += 1
    return tuple(found)
