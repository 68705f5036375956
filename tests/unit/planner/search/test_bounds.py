"""A bound is never above the true optimum, and what it calls too big for the memory is."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.search.bounds import lower_bound_ns, rules_out, spread_bound_ns
from planner.strategy import ScheduleName
from tests.unit.planner.search.oracle import best_plan, small_problems


@settings(max_examples=2000, deadline=None)
@given(small_problems())
def test_no_plan_beats_the_lower_bound(problem: PipelineProblem) -> None:
    best = best_plan(problem).makespan_ns
    bound = lower_bound_ns(problem)
    if best is not None:
        assert bound is not None
        assert bound <= best
        assert not rules_out(problem, best)


@settings(max_examples=500, deadline=None)
@given(small_problems(), st.booleans())
def test_no_schedule_of_the_stages_beats_the_spread_bound(problem: PipelineProblem, blocks: bool) -> None:  # noqa: FBT001
    plain = replace(
        problem,
        transfer_blocks=blocks,
        shape=PipelineShape(
            schedule=ScheduleName.ONE_FORWARD_ONE_BACKWARD,
            num_stages=problem.shape.num_stages,
            virtual_stages=1,
            num_micro_batches=problem.shape.num_micro_batches,
        ),
    )
    best = best_plan(problem).makespan_ns
    bound = spread_bound_ns(plain)
    if best is not None:
        assert bound is not None
        assert bound <= best
