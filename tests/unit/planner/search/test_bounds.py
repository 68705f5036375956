"""A bound is never above the true optimum, and what it calls too big for the memory is."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.search.bounds import apart_bound_ns, lower_bound_ns, rules_out, spread_bound_ns
from planner.strategy import ScheduleName
from tests.unit.planner.cost.problems import ALTERNATING
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


@settings(max_examples=300, deadline=None)
@given(small_problems(), st.integers(min_value=10, max_value=1000))
def test_no_plan_beats_the_bound_where_updates_take_most(problem: PipelineProblem, factor: int) -> None:
    slow = tuple(replace(c, optimizer_ns=c.optimizer_ns * factor) for c in problem.classes)
    updated = replace(problem, classes=slow)
    best, bound = best_plan(updated).makespan_ns, lower_bound_ns(updated)
    if best is not None:
        assert bound is not None
        assert bound <= best


@settings(max_examples=500, deadline=None)
@given(small_problems(schedules=(*ALTERNATING, ScheduleName.BREADTH_FIRST)), st.booleans())
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


APART = tuple(schedule for schedule in ScheduleName if schedule.splits_backward)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(small_problems(schedules=APART).filter(lambda problem: problem.shape.schedule in APART))
def test_no_zero_bubble_schedule_of_the_stages_beats_their_bound(problem: PipelineProblem) -> None:
    plain = replace(
        problem,
        shape=PipelineShape(
            schedule=ScheduleName.ZB_H1,
            num_stages=problem.shape.num_stages,
            virtual_stages=1,
            num_micro_batches=problem.shape.num_micro_batches,
        ),
    )
    best = best_plan(problem).makespan_ns
    if best is not None:
        bound = apart_bound_ns(plain)
        assert bound is not None
        assert bound <= best
