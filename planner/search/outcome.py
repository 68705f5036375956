"""What a search has found: layouts solved, the best of them, and the bound that holds for all others."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from planner.cost.pipeline import Assignment, PipelineProblem
from planner.search.master import Solution
from planner.search.point_master import simplest_evenly
from planner.search.ranking import layout_rank
from planner.search.rows import PathRows
from planner.search.solver import WorkLimits
from planner.strategy import Layout
from planner.units import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A layout that was solved: its best assignment and what that takes.

    ``paths`` are known ones of the problem, where a simpler assignment may be as fast.
    """

    layout: Layout
    problem: PipelineProblem
    assignment: Assignment
    makespan_ns: int
    paths: PathRows | None = field(default=None, compare=False, repr=False)

    @property
    def rank(self) -> tuple[object, ...]:
        """Order of preference: time, then fewest techniques, then smallest degrees."""
        return (self.makespan_ns, layout_rank(self.layout))


@dataclass(kw_only=True, slots=True)
class SearchOutcome:
    """How a search ended. ``lower_bound_ns`` holds for every plan of the space."""

    best: Candidate | None = None
    lower_bound_ns: int = 0
    finished: bool = False
    total: int = 0
    plans: float = 0.0
    solved: int = 0
    solve_seconds: Seconds = 0.0
    runners_up: list[Candidate] = field(default_factory=list)

    @property
    def pruned(self) -> int:
        """Layouts that no program had to solve."""
        return self.total - self.solved


ProgressReport = Callable[[SearchOutcome, int], None]
"""Called with the state so far and the number of open nodes."""


def simplest(candidate: Candidate, *, limits: WorkLimits | None = None) -> Candidate:
    """Return the simplest plan of a candidate's layout that is as fast: what solved it may have left one."""
    solution = Solution(
        assignment=candidate.assignment,
        makespan_ns=candidate.makespan_ns,
        lower_bound_ns=candidate.makespan_ns,
        paths=candidate.paths,
    )
    return replace(
        candidate, assignment=simplest_assignment(candidate.problem, solution, limits=limits), paths=None
    )


def simplest_assignment(
    problem: PipelineProblem, solution: Solution, *, limits: WorkLimits | None
) -> Assignment:
    """Return the simplest assignment that is as fast as a solution, where its paths tell which are."""
    if solution.paths is None:
        return solution.assignment
    return simplest_evenly(problem, solution, limits=limits)
