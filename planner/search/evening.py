"""Among splits that take exactly equal time, an even one: what a person would have chosen."""

from collections.abc import Iterator
from dataclasses import dataclass

from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.search.hosts import fits_hosts

MOST_MOVES = 64


def evened(problem: PipelineProblem, assignment: Assignment, *, makespan_ns: int) -> Assignment:
    """Return a split as fast as ``assignment``, with layers moved from busy stages to idle ones.

    One layer at a time, from the stage with most work to the one with least, as long as the step
    takes no longer, memory suffices and the two come closer. Layouts of several chunks per stage
    are even by construction and stay as they are, and so do layers that differ: they keep their order.
    """
    if problem.shape.virtual_stages > 1 or problem.shape.num_stages == 1 or not problem.is_uniform:
        return assignment
    for _ in range(MOST_MOVES):
        better = next(
            (moved for moved in _closer(problem, assignment) if _is_as_good(problem, moved, makespan_ns)),
            None,
        )
        if better is None:
            return assignment
        assignment = better
    return assignment


@dataclass(frozen=True, kw_only=True, slots=True)
class _Move:
    """A layer that moves from one stage to another, and by how much their works differ."""

    gap_ns: int
    source: int
    target: int
    option: int


def _closer(problem: PipelineProblem, assignment: Assignment) -> Iterator[Assignment]:
    """Yield the splits after one move that brings two stages closer, the widest gap first."""
    costs = chunk_costs(problem, assignment)
    work = [cost.forward_ns + cost.backward_ns for cost in costs]
    stages = range(len(work))
    moves = [
        _Move(gap_ns=work[source] - work[target], source=source, target=target, option=option)
        for source in stages
        for target in stages
        for option, kind in enumerate(problem.options)
        if assignment[source][option]
        and sum(assignment[source]) > problem.minimum_layers(source)
        and work[source] - work[target] > kind.forward_ns + kind.backward_ns
    ]
    for move in sorted(moves, key=lambda move: (-move.gap_ns, move.source, move.target, move.option)):
        yield _moved(assignment, move)


def _moved(assignment: Assignment, move: _Move) -> Assignment:
    counts = [list(entry) for entry in assignment]
    counts[move.source][move.option] -= 1
    counts[move.target][move.option] += 1
    return tuple(map(tuple, counts))


def _is_as_good(problem: PipelineProblem, assignment: Assignment, makespan_ns: int) -> bool:
    costs = chunk_costs(problem, assignment)
    stages = range(problem.shape.num_stages)
    fits = all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages)
    return fits and fits_hosts(problem, assignment) and replay(problem, costs).makespan_ns <= makespan_ns
