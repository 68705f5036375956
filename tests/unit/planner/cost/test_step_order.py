"""A step's flat order holds every pass once, after those that it waits for, and repeats where it can."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.schedules import PipelineShape, stage_orders
from planner.cost.step_order import step_order
from planner.strategy import ScheduleName
from tests.unit.planner.cost.long_steps import long_shapes
from tests.unit.planner.cost.problems import shapes


@given(st.data())
def test_every_chunk_runs_each_of_its_passes_once_per_micro_batch(data: st.DataObject) -> None:
    shape = data.draw(shapes().flatmap(long_shapes))
    order = step_order(shape)
    passes: Counter[int] = Counter()
    for segment in order.segments:
        for lane in segment.lane:
            passes[lane] += order.num_rounds if segment.is_loop else 1
    listed = (step for steps in stage_orders(shape) for step in steps)
    assert passes == Counter(shape.lane(step.kind, step.chunk) for step in listed)


@given(st.data())
def test_a_pass_follows_earlier_ones(data: st.DataObject) -> None:
    order = step_order(data.draw(shapes().flatmap(long_shapes)))
    index = order.num_stages
    for segment in order.segments:
        for before, feeding in zip(segment.before, segment.feeding, strict=True):
            assert before < 0
            assert feeding < 0
            assert index + min(before, feeding) >= 0
            index += 1


@pytest.mark.parametrize(
    ("schedule", "virtual", "group"),
    [
        (ScheduleName.GPIPE, 1, None),
        (ScheduleName.ONE_FORWARD_ONE_BACKWARD, 1, None),
        (ScheduleName.INTERLEAVED, 3, None),
        (ScheduleName.INTERLEAVED, 2, 6),
        (ScheduleName.ZB_H1, 1, None),
        (ScheduleName.ZB_H1, 2, None),
        (ScheduleName.ZB_V, 2, None),
        (ScheduleName.DUALPIPE_V, 2, None),
    ],
)
def test_more_micro_batches_are_more_rounds_of_the_same_order(
    schedule: ScheduleName, virtual: int, group: int | None
) -> None:
    some, many = (
        step_order(
            PipelineShape(
                schedule=schedule,
                num_stages=4,
                virtual_stages=virtual,
                num_micro_batches=count,
                group_size=group,
            )
        )
        for count in (60, 1200)
    )
    assert many.segments == some.segments
    assert many.num_rounds > some.num_rounds > 1


@pytest.mark.parametrize("micro_batches", [5, 61])
def test_stages_that_wait_for_each_other_are_refused(micro_batches: int) -> None:
    shape = PipelineShape(
        schedule=ScheduleName.INTERLEAVED, num_stages=4, virtual_stages=3, num_micro_batches=micro_batches
    )
    with pytest.raises(ValueError, match="wait for each other"):
        step_order(shape)


@pytest.mark.parametrize("micro_batches", [20, 23, 26])
def test_groups_smaller_than_the_stages_run_all_passes(micro_batches: int) -> None:
    shape = PipelineShape(
        schedule=ScheduleName.INTERLEAVED,
        num_stages=3,
        virtual_stages=2,
        num_micro_batches=micro_batches,
        group_size=2,
    )
    order = step_order(shape)
    rounds = (order.num_rounds if segment.is_loop else 1 for segment in order.segments)
    passes = sum(len(segment.lane) * times for segment, times in zip(order.segments, rounds, strict=True))
    assert passes == 2 * shape.num_chunks * micro_batches
