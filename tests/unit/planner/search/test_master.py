"""The master finds what trying everything finds, proves it, and prefers the simplest of equals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.search.master import Excluded, Solution, serial_ns, solve
from planner.search.solver import WorkLimits
from planner.strategy import RecomputeMode
from tests.unit.planner.cost.problems import ALTERNATING
from tests.unit.planner.search.oracle import best_plan, small_problems


@settings(max_examples=400, deadline=None)
@given(small_problems(schedules=ALTERNATING))
def test_the_master_finds_the_best_plan(problem: PipelineProblem) -> None:
    best, solution = best_plan(problem), solve(problem)
    if best.makespan_ns is None:
        assert solution == Excluded(lower_bound_ns=None)
        return
    assert isinstance(solution, Solution)
    assert solution.makespan_ns == solution.lower_bound_ns == best.makespan_ns
    modes = [option.recompute.mode for option in problem.options]
    by_mode = dict.fromkeys(RecomputeMode, 0)
    for counts in solution.assignment:
        for mode, count in zip(modes, counts, strict=True):
            by_mode[mode] += count
    assert (by_mode[RecomputeMode.FULL], by_mode[RecomputeMode.SELECTIVE]) == best.recomputed


@settings(max_examples=200, deadline=None)
@given(small_problems(schedules=ALTERNATING))
def test_what_the_master_answers_is_a_plan_that_fits(problem: PipelineProblem) -> None:
    solution = solve(problem)
    if not isinstance(solution, Solution):
        return
    costs = chunk_costs(problem, solution.assignment)
    assert replay(problem, costs).makespan_ns == solution.makespan_ns <= serial_ns(problem)
    assert sum(map(sum, solution.assignment)) == problem.num_layers
    for chunk, counts in enumerate(solution.assignment):
        assert sum(counts) >= problem.minimum_layers(chunk)
    for stage in range(problem.shape.num_stages):
        assert stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes


@settings(max_examples=200, deadline=None)
@given(small_problems(schedules=ALTERNATING), st.integers(-20, 20))
def test_a_cutoff_rules_out_exactly_what_is_slower(problem: PipelineProblem, distance: int) -> None:
    best = best_plan(problem).makespan_ns
    cutoff = (best or 0) + distance
    solution = solve(problem, cutoff_ns=cutoff)
    assert isinstance(solution, Solution) == (best is not None and best <= cutoff)
    if isinstance(solution, Excluded) and best is not None:
        assert solution.lower_bound_ns is not None
        assert cutoff < solution.lower_bound_ns <= best


@settings(max_examples=50, deadline=None)
@given(small_problems(schedules=ALTERNATING))
def test_the_same_layout_gets_the_same_answer(problem: PipelineProblem) -> None:
    assert solve(problem) == solve(problem)


@pytest.mark.parametrize("work", [0.0, 1e-4])
@settings(max_examples=100, deadline=None)
@given(problem=small_problems(schedules=ALTERNATING))
def test_a_search_cut_short_claims_no_more_than_it_knows(work: float, problem: PipelineProblem) -> None:
    best = best_plan(problem).makespan_ns
    solution = solve(problem, limits=WorkLimits(deterministic_seconds=work))
    if best is None:
        assert isinstance(solution, Excluded)
        return
    assert solution.lower_bound_ns is not None
    assert solution.lower_bound_ns <= best
    if isinstance(solution, Solution):
        assert solution.makespan_ns >= best
        assert solution.is_proven == (solution.lower_bound_ns == solution.makespan_ns)
