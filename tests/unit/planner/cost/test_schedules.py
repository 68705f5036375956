"""Every schedule runs every pass once, in an order that can be executed."""

import pytest
from hypothesis import given

from planner.cost.schedules import PassKind, PipelineShape, memory_moments, stage_orders
from planner.strategy import ScheduleName
from tests.unit.planner.cost.problems import shapes


@given(shape=shapes())
def test_every_stage_makes_each_result_of_its_chunks_once(shape: PipelineShape) -> None:
    """A forward pass, a gradient of the inputs and one of the weights; a backward pass makes both."""
    made = {
        PassKind.FORWARD: ["forward"],
        PassKind.BACKWARD: ["input", "weight"],
        PassKind.INPUT: ["input"],
        PassKind.WEIGHT: ["weight"],
    }
    for stage, order in enumerate(stage_orders(shape)):
        found = sorted(
            (step.chunk, step.micro_batch, what) for step in order for what in made[PassKind(step.kind)]
        )
        assert found == [
            (chunk, micro_batch, what)
            for chunk in shape.chunks_of(stage)
            for micro_batch in range(shape.num_micro_batches)
            for what in ("forward", "input", "weight")
        ]


@given(shape=shapes())
def test_a_pass_comes_after_what_it_needs_of_its_own_chunk(shape: PipelineShape) -> None:
    for order in stage_orders(shape):
        done = set()
        for step in order:
            needed = PassKind.INPUT if step.kind == PassKind.WEIGHT else PassKind.FORWARD
            assert step.kind == PassKind.FORWARD or step._replace(kind=int(needed)) in done
            done.add(step)


@given(shape=shapes())
def test_every_chunk_sits_on_one_stage(shape: PipelineShape) -> None:
    held = [chunk for stage in range(shape.num_stages) for chunk in shape.chunks_of(stage)]
    assert sorted(held) == list(range(shape.num_chunks))
    for stage in range(shape.num_stages):
        for turn, chunk in enumerate(shape.chunks_of(stage)):
            assert shape.stage_of(chunk) == stage
            assert shape.turn_of(chunk) == turn


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 5), (4, 16), (6, 30)])
def test_zb_h1_keeps_no_more_micro_batches_than_1f1b(stages: int, micro_batches: int) -> None:
    """Those whose weights wait for a gradient included, no stage keeps more than the first one of 1F1B."""
    shape = PipelineShape(
        schedule=ScheduleName.ZB_H1, num_stages=stages, virtual_stages=1, num_micro_batches=micro_batches
    )
    for stage in range(stages):
        moments = memory_moments(shape, stage)
        assert max(sum(moment.saved) + sum(moment.waiting) for moment in moments) == stages
        assert max(sum(moment.saved) for moment in moments) == stages - stage


@pytest.mark.parametrize("schedule", [ScheduleName.ZB_V, ScheduleName.DUALPIPE_V])
@pytest.mark.parametrize("stages", [2, 4, 5])
def test_folded_schedules_keep_as_much_on_every_stage(schedule: ScheduleName, stages: int) -> None:
    """ZB-V: 2 p halves of a stage, as 1F1B keeps on its first; DualPipeV one more (their papers)."""
    shape = PipelineShape(
        schedule=schedule, num_stages=stages, virtual_stages=2, num_micro_batches=4 * stages
    )
    most = [max(sum(moment.saved) for moment in memory_moments(shape, stage)) for stage in range(stages)]
    assert most == [2 * stages + (schedule is ScheduleName.DUALPIPE_V)] * stages


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (4, 2), (4, 8), (8, 64)])
def test_1f1b_keeps_at_most_the_distance_to_the_last_stage(stages: int, micro_batches: int) -> None:
    shape = PipelineShape(
        schedule=ScheduleName.ONE_FORWARD_ONE_BACKWARD,
        num_stages=stages,
        virtual_stages=1,
        num_micro_batches=micro_batches,
    )
    for stage in range(stages):
        most = max(moment.saved[0] for moment in memory_moments(shape, stage))
        assert most == min(stages - stage, micro_batches)


def test_interleaving_keeps_the_micro_batches_of_its_warm_up() -> None:
    """Stage 0 holds 2 (p - 1) + (v - 1) p + 1 chunk activations (Narayanan et al., SC21)."""
    shape = PipelineShape(
        schedule=ScheduleName.INTERLEAVED, num_stages=4, virtual_stages=3, num_micro_batches=16
    )
    assert max(sum(moment.saved) for moment in memory_moments(shape, 0)) == 2 * 3 + 2 * 4 + 1


@pytest.mark.parametrize(("schedule", "virtual"), [(ScheduleName.INTERLEAVED, 1), (ScheduleName.GPIPE, 2)])
def test_a_schedule_with_the_wrong_number_of_chunks_is_refused(schedule: ScheduleName, virtual: int) -> None:
    with pytest.raises(ValueError, match="virtual stages"):
        PipelineShape(schedule=schedule, num_stages=2, virtual_stages=virtual, num_micro_batches=4)
