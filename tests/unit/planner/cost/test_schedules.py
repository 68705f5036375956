"""Every schedule runs every pass once, in an order that can be executed."""

import pytest
from hypothesis import given

from planner.cost.schedules import PipelineShape, memory_moments, stage_orders
from planner.strategy import ScheduleName
from tests.unit.planner.cost.problems import shapes


@given(shape=shapes())
def test_every_stage_runs_both_passes_of_its_chunks_once(shape: PipelineShape) -> None:
    for stage, order in enumerate(stage_orders(shape)):
        assert len(order) == len(set(order)) == 2 * shape.virtual_stages * shape.num_micro_batches
        assert all(step.chunk % shape.num_stages == stage for step in order)


@given(shape=shapes())
def test_a_forward_pass_comes_before_its_backward_pass(shape: PipelineShape) -> None:
    for order in stage_orders(shape):
        done = set()
        for step in order:
            assert not step.backward or (step.chunk, step.micro_batch) in done
            done.add((step.chunk, step.micro_batch))


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
