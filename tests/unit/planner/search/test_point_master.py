"""Layouts of several chunks per stage are solved as brute force over every even split would."""

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.search.master import Excluded, Solution
from planner.search.point_master import solve_evenly
from tests.unit.planner.cost.problems import problems
from tests.unit.planner.cost.test_replay import longest_path_ns
from tests.unit.planner.search.enumeration import every_even_split

several_chunks = problems(max_stages=3, max_layers=8, max_options=2).filter(
    lambda problem: problem.shape.virtual_stages > 1 or problem.shape.schedule.splits_backward
)


def best_even_split_ns(problem: PipelineProblem) -> int | None:
    """Try every even split, timed by plain recursion over the graph."""
    times = []
    for assignment in every_even_split(problem):
        costs = chunk_costs(problem, assignment)
        stages = range(problem.shape.num_stages)
        if all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages):
            times.append(longest_path_ns(problem, costs))
    return min(times, default=None)


@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(problem=several_chunks)
def test_no_even_split_is_faster(problem: PipelineProblem) -> None:
    best = best_even_split_ns(problem)
    solved = solve_evenly(problem)
    if best is None:
        assert isinstance(solved, Excluded)
    else:
        assert isinstance(solved, Solution)
        assert solved.makespan_ns == solved.lower_bound_ns == best
        assert longest_path_ns(problem, chunk_costs(problem, solved.assignment)) == best


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(problem=several_chunks, data=st.data())
def test_a_cutoff_rules_out_exactly_what_is_slower(problem: PipelineProblem, data: st.DataObject) -> None:
    best = best_even_split_ns(problem)
    assume(best is not None)
    assert best is not None
    cutoff = best + data.draw(st.integers(-20, 20))
    solved = solve_evenly(problem, cutoff_ns=cutoff)
    assert isinstance(solved, Solution) == (best <= cutoff)
    if isinstance(solved, Excluded):
        assert solved.lower_bound_ns is not None
        assert cutoff < solved.lower_bound_ns <= best


@settings(max_examples=20, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(problem=several_chunks)
def test_the_same_layout_gets_the_same_answer(problem: PipelineProblem) -> None:
    assert solve_evenly(problem) == solve_evenly(problem)
