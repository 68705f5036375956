"""The master finds what trying everything finds, and proves it."""

from hypothesis import given, settings

from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.search.master import Excluded, Solution, solve
from tests.unit.planner.search.oracle import best_plan, small_problems


@settings(max_examples=300, deadline=None)
@given(small_problems())
def test_the_master_finds_the_best_plan(problem: PipelineProblem) -> None:
    best, solution = best_plan(problem).makespan_ns, solve(problem)
    if best is None:
        assert solution == Excluded(lower_bound_ns=None)
        return
    assert isinstance(solution, Solution)
    assert solution.makespan_ns == solution.lower_bound_ns == best
    costs = chunk_costs(problem, solution.assignment)
    assert replay(problem, costs).makespan_ns == best
    assert sum(map(sum, solution.assignment)) == problem.num_layers
    for chunk, counts in enumerate(solution.assignment):
        assert sum(counts) >= problem.minimum_layers(chunk)
    for stage in range(problem.shape.num_stages):
        assert stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes
