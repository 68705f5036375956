"""Layers of several classes keep their order, and no way to split and run them is faster than the answer."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.search.bounds import lower_bound_ns, rules_out
from planner.search.capacity import even_chunks_fit
from planner.search.master import Excluded, Solution
from planner.search.span_master import solve_in_order
from tests.unit.planner.cost.test_replay import longest_path_ns
from tests.unit.planner.search.enumeration import every_assignment
from tests.unit.planner.search.oracle import best_plan, small_mixed_problems

SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow]
MOST_CHUNKS = 4
"""Chunks of a problem all of whose plans are tried one by one."""
MOST_PLANS = 100
"""Plans of such a problem."""
mixed = small_mixed_problems()
one_chunk = mixed.filter(lambda problem: problem.shape.virtual_stages == 1)
few_chunks = mixed.filter(lambda problem: problem.shape.num_chunks <= MOST_CHUNKS)
several_chunks = mixed.filter(lambda problem: problem.shape.virtual_stages > 1)


def check_is_real(problem: PipelineProblem, solved: Solution) -> None:
    """Check that a plan holds the chain in order, fits, and takes as long as it says."""
    costs = chunk_costs(problem, solved.assignment)
    stages = range(problem.shape.num_stages)
    assert longest_path_ns(problem, costs) == solved.makespan_ns
    assert all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages)
    options, start = len(problem.classes[0].options), 0
    for counts in solved.assignment:
        held = list(problem.sequence[start : start + sum(counts)])
        for number in range(len(problem.classes)):
            assert held.count(number) == sum(counts[number * options : (number + 1) * options])
        start += sum(counts)
    assert start == problem.num_layers


def check_is_solved(problem: PipelineProblem, best_ns: int | None) -> None:
    """Check that the answer is real and as fast as the best plan, or that there is none if nothing fits."""
    solved = solve_in_order(problem)
    if best_ns is None:
        assert isinstance(solved, Excluded)
    else:
        assert isinstance(solved, Solution)
        assert solved.makespan_ns == solved.lower_bound_ns == best_ns
        check_is_real(problem, solved)


def quickest_ns(problem: PipelineProblem, plans: Iterable[Assignment]) -> int | None:
    """Return how long the quickest of some plans takes, None where none of them fits."""
    stages, times = range(problem.shape.num_stages), []
    for assignment in plans:
        costs = chunk_costs(problem, assignment)
        if all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages):
            times.append(replay(problem, costs).makespan_ns)
    return min(times, default=None)


@settings(max_examples=150, suppress_health_check=SLOW)
@given(problem=one_chunk)
def test_no_plan_of_one_chunk_per_stage_is_faster(problem: PipelineProblem) -> None:
    check_is_solved(problem, best_plan(problem).makespan_ns)


@settings(max_examples=60, suppress_health_check=SLOW)
@given(problem=several_chunks)
def test_several_chunks_are_solved_within_what_is_possible(problem: PipelineProblem) -> None:
    best = best_plan(problem).makespan_ns
    solved = solve_in_order(problem)
    if isinstance(solved, Solution):
        assert best is not None
        assert solved.makespan_ns >= best
        check_is_real(problem, solved)


@settings(max_examples=40, suppress_health_check=SLOW)
@given(problem=few_chunks.filter(lambda problem: problem.shape.virtual_stages > 1), is_sorted=st.booleans())
def test_no_split_of_several_chunks_that_is_considered_is_faster(
    problem: PipelineProblem, *, is_sorted: bool
) -> None:
    if is_sorted:
        problem = replace(problem, sequence=tuple(sorted(problem.sequence)))
    tried = list(islice(every_assignment(problem), MOST_PLANS + 1))
    assume(len(tried) <= MOST_PLANS)
    check_is_solved(problem, quickest_ns(problem, tried))


@settings(max_examples=150, suppress_health_check=SLOW)
@given(problem=mixed)
def test_bounds_lie_below_every_plan(problem: PipelineProblem) -> None:
    best, bound = best_plan(problem).makespan_ns, lower_bound_ns(problem)
    if best is not None:
        assert bound is not None
        assert bound <= best


@settings(max_examples=60, suppress_health_check=SLOW)
@given(problem=one_chunk, data=st.data())
def test_a_cutoff_rules_out_exactly_what_is_slower(problem: PipelineProblem, data: st.DataObject) -> None:
    best = best_plan(problem).makespan_ns
    assume(best is not None)
    assert best is not None
    cutoff = best + data.draw(st.integers(-20, 20))
    solved = solve_in_order(problem, cutoff_ns=cutoff)
    assert isinstance(solved, Solution) == (best <= cutoff)
    if isinstance(solved, Excluded):
        assert solved.lower_bound_ns is not None
        assert cutoff < solved.lower_bound_ns <= best


@settings(max_examples=60, suppress_health_check=SLOW)
@given(problem=few_chunks)
def test_no_plan_that_is_considered_is_ruled_out(problem: PipelineProblem) -> None:
    stages = range(problem.shape.num_stages)
    for assignment in islice(every_assignment(problem), 100):
        costs = chunk_costs(problem, assignment)
        if all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages):
            assert not rules_out(problem, longest_path_ns(problem, costs))
            assert problem.shape.virtual_stages == 1 or even_chunks_fit(problem)


@settings(max_examples=20, suppress_health_check=SLOW)
@given(problem=mixed)
def test_the_same_layout_gets_the_same_answer(problem: PipelineProblem) -> None:
    assert solve_in_order(problem) == solve_in_order(problem)
