"""Stages that share a host: what the masters answer fits it, and nothing that fits is faster."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.schedules import most_kept
from planner.search.evening import evened
from planner.search.hosts import HostRows, fits_hosts
from planner.search.master import Excluded, Solution, solve
from planner.search.point_master import solve_evenly
from planner.search.span_master import solve_in_order
from tests.unit.planner.cost.problems import ALTERNATING, problems
from tests.unit.planner.cost.test_replay import longest_path_ns
from tests.unit.planner.search.enumeration import every_even_split
from tests.unit.planner.search.oracle import best_plan, small_mixed_problems, small_problems, with_hosts

SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow]


def check(solved: Solution | Excluded, best_ns: int | None, problem: PipelineProblem) -> None:
    if best_ns is None:
        assert solved == Excluded(lower_bound_ns=None)
        return
    assert isinstance(solved, Solution)
    assert solved.makespan_ns == solved.lower_bound_ns == best_ns
    assert fits_hosts(problem, solved.assignment)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(problem=small_problems(schedules=ALTERNATING).flatmap(with_hosts))
def test_the_master_finds_the_best_plan_that_fits_the_hosts(problem: PipelineProblem) -> None:
    solved = solve(problem)
    check(solved, best_plan(problem).makespan_ns, problem)
    if isinstance(solved, Solution):
        even = evened(problem, solved.assignment, makespan_ns=solved.makespan_ns)
        assert fits_hosts(problem, even)


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(problem=small_problems(schedules=ALTERNATING).flatmap(with_hosts), distance=st.integers(-20, 20))
def test_a_cutoff_rules_out_exactly_what_is_slower(problem: PipelineProblem, distance: int) -> None:
    best = best_plan(problem).makespan_ns
    cutoff = (best or 0) + distance
    assert isinstance(solve(problem, cutoff_ns=cutoff), Solution) == (best is not None and best <= cutoff)


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(
    problem=small_mixed_problems()
    .filter(lambda problem: problem.shape.virtual_stages == 1)
    .flatmap(with_hosts)
)
def test_layers_in_their_order_fit_the_hosts(problem: PipelineProblem) -> None:
    best, solved = best_plan(problem).makespan_ns, solve_in_order(problem)
    if best is None:
        assert isinstance(solved, Excluded)
        return
    check(solved, best, problem)


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(
    problem=problems(max_stages=3, max_layers=8, max_options=2, schedules=ALTERNATING)
    .filter(lambda problem: problem.shape.virtual_stages > 1)
    .flatmap(with_hosts)
)
def test_even_splits_over_several_chunks_fit_the_hosts(problem: PipelineProblem) -> None:
    times = []
    for assignment in every_even_split(problem):
        costs = chunk_costs(problem, assignment)
        stages = range(problem.shape.num_stages)
        fits = all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages)
        if fits and fits_hosts(problem, assignment):
            times.append(longest_path_ns(problem, costs))
    solved = solve_evenly(problem)
    if not times:
        assert isinstance(solved, Excluded)
        return
    check(solved, min(times), problem)


@settings(max_examples=30, deadline=None)
@given(problem=small_problems(schedules=ALTERNATING).flatmap(with_hosts))
def test_the_search_counts_the_activations_that_a_prediction_counts(problem: PipelineProblem) -> None:
    stages, rows = problem.shape.num_stages, HostRows(problem)
    for stage in range(stages):
        assert tuple(rows.kept[problem.shape.own(stage)]) == most_kept(problem.shape, stage)
