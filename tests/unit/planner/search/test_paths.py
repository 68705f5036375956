"""A path of the fixed graph never takes longer than the step; some are usually the longest."""

from hypothesis import given
from hypothesis import strategies as st

from planner.cost.pipeline import chunk_costs
from planner.cost.replay import replay
from planner.cost.schedules import PipelineShape, memory_moments, stage_orders
from planner.search.orders import (
    backwards_before_last_forward,
    backwards_by_turn,
    compact_shape,
    forwards_before_first_backward,
    forwards_by_turn,
    kept_at_first_backward,
)
from planner.search.paths import stage_paths
from tests.unit.planner.cost.problems import ALTERNATING, assignments, problems, shapes
from tests.unit.planner.cost.test_replay import even_problem


@given(st.data())
def test_no_path_is_longer_than_the_step(data: st.DataObject) -> None:
    problem = data.draw(problems())
    costs = chunk_costs(problem, data.draw(assignments(problem)))
    makespan = replay(problem, costs).makespan_ns
    for stage in range(problem.shape.num_stages):
        assert all(path.length_ns(costs) <= makespan for path in stage_paths(problem, stage))


def test_every_stage_of_an_even_1f1b_pipeline_has_a_longest_path() -> None:
    problem = even_problem(stages=6, virtual_stages=1, micro_batches=16)
    costs = chunk_costs(problem, ((1,),) * 6)
    for stage in range(6):
        lengths = [path.length_ns(costs) for path in stage_paths(problem, stage)]
        assert max(lengths) == replay(problem, costs).makespan_ns


@given(shapes(max_micro_batches=14, schedules=ALTERNATING), st.data())
def test_counts_by_arithmetic_are_those_of_a_walk(shape: PipelineShape, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, shape.num_stages - 1))
    order = stage_orders(shape)[stage]
    backward = [step.backward for step in order]
    assert forwards_before_first_backward(shape, stage) == backward.index(True)
    last = len(order) - 1 - backward[::-1].index(False)
    assert backwards_before_last_forward(shape, stage) == sum(backward[:last])
    passes = data.draw(st.integers(0, len(order) // 2))
    for is_backward, counted in ((False, forwards_by_turn), (True, backwards_by_turn)):
        walked = [0] * shape.virtual_stages
        for step in [step for step in order if step.backward is is_backward][:passes]:
            walked[step.chunk // shape.num_stages] += 1
        assert counted(shape, passes) == walked


@given(shapes(max_micro_batches=14))
def test_what_is_kept_at_the_first_gradient_is_what_a_walk_counts(shape: PipelineShape) -> None:
    for stage in range(shape.num_stages):
        kept = [0] * shape.virtual_stages
        for step in stage_orders(shape)[stage]:
            if step.backward:
                break
            kept[shape.turn_of(step.chunk)] += 1
        assert kept_at_first_backward(shape, stage) == kept


@given(shapes(max_micro_batches=60))
def test_fewer_micro_batches_have_the_same_memory_moments(shape: PipelineShape) -> None:
    for stage in range(shape.num_stages):
        assert set(memory_moments(compact_shape(shape), stage)) == set(memory_moments(shape, stage))
