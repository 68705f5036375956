"""One layout solved exactly: master program and replay, in rounds, until they agree.

The program's step is at least every path that it knows, so its optimum bounds the layout's from below.
The replay of its answer shows the path that it did not know; with that one added it is solved again.
When the program finds nothing faster than the best replay, or exactly what the replay says, nothing in
the layout is faster.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs
from planner.cost.steady import play_step
from planner.search.bounds import lower_bound_ns
from planner.search.box import Box, narrowed, whole_box
from planner.search.capacity import most_layers
from planner.search.hosts import fits_hosts
from planner.search.incumbent import Incumbent, assignment_of
from planner.search.program import Answer, Program
from planner.search.rows import PathRows, first_rows, joined, replayed_row
from planner.search.solver import WorkLimits
from planner.search.stage import Way, Ways

MISSES = 8
"""Plans shifted by hand that may be no faster, one after the other, before the program is asked."""
SIMPLER = 20
"""Rounds in which a simpler plan is asked for that is as fast as the best one."""
"""Rounds of shifting and replaying by hand before the program is asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """The fastest assignment found for a layout; proven when the bound is its makespan.

    ``paths`` are those that were learnt on the way, where a simpler one may be asked for later.
    """

    assignment: Assignment
    makespan_ns: int
    lower_bound_ns: int
    paths: PathRows | None = field(default=None, compare=False, repr=False)

    @property
    def is_proven(self) -> bool:
        """Whether nothing in the layout is faster."""
        return self.lower_bound_ns >= self.makespan_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class Excluded:
    """Nothing in a layout is as fast as the cutoff and fits; everything takes ``lower_bound_ns`` or more.

    ``lower_bound_ns`` is None where nothing fits at all.
    """

    lower_bound_ns: int | None


def solve(
    problem: PipelineProblem, *, cutoff_ns: int | None = None, limits: WorkLimits | None = None
) -> Solution | Excluded:
    """Return the fastest assignment of a layout, or that none takes at most ``cutoff_ns``.

    Among equally fast ones the one of fewest techniques, then the most even one. ``limits`` may end it
    before the proof: the bound is then below the makespan, or below the cutoff.
    """
    capacity, bound = most_layers(problem), lower_bound_ns(problem)
    if capacity is None or bound is None:
        return Excluded(lower_bound_ns=None)
    return _Rounds(problem, capacity, bound, limits or WorkLimits()).run(cutoff_ns)


class _Rounds:
    """The rounds of one layout: known paths, the best replayed plan, the proven bound."""

    def __init__(
        self, problem: PipelineProblem, capacity: list[int], bound_ns: int, limits: WorkLimits
    ) -> None:
        self._problem, self._capacity, self._limits = problem, capacity, limits
        self._deadline = time.monotonic() + limits.wall_clock_seconds
        self._bound_ns = bound_ns
        self._ways = Ways(problem)
        self._box = whole_box(problem, capacity)
        self._incumbent = Incumbent(problem, self._ways, self._box)
        self._best: tuple[Way, ...] | None = None
        self._best_ns = serial_ns(problem) + 1
        self._rows = first_rows(problem)

    def run(self, cutoff_ns: int | None) -> Solution | Excluded:
        if cutoff_ns is not None and self._narrow(cutoff_ns) is None:
            return Excluded(lower_bound_ns=max(self._bound_ns, cutoff_ns + 1))
        self._start()
        within = self._best_ns - 1 if cutoff_ns is None else min(self._best_ns - 1, cutoff_ns)
        while self._bound_ns <= within:
            box = self._narrow(within)
            if box is None:
                self._bound_ns = within + 1
                break
            answer = self._ask(box, within)
            if not answer.finished:
                break
            within = min(within, self._best_ns - 1)
        if self._best is not None and self._bound_ns >= self._best_ns:
            self._simplify(self._best)
        return self._conclude(cutoff_ns)

    def _ask(self, box: Box, within_ns: int) -> Answer:
        """Solve the program once; replay what it answers and learn the path that decides it."""
        program = Program(self._problem, self._ways, box, at_least_ns=self._bound_ns, within_ns=within_ns)
        program.add_paths(self._rows)
        if self._best is not None:
            program.hint(self._best)
        answer = program.least_time(self._limits_left())
        if answer.chosen is not None:
            self._play(answer.chosen)
            self._play(self._incumbent.improve(list(answer.chosen), self._rows))
        proven = within_ns + 1 if answer.finished and answer.chosen is None else answer.bound
        self._bound_ns = max(self._bound_ns, proven)
        return answer

    def _start(self) -> None:
        """Find a good plan by hand: shift layers while known paths shrink, play, learn the path, repeat."""
        chosen = self._incumbent.start()
        if chosen is None:
            return
        self._play(chosen)
        misses = 0
        while misses < MISSES and self._best is not None:
            chosen = self._incumbent.improve(list(self._best), self._rows)
            if tuple(chosen) == self._best:
                return
            best_ns = self._best_ns
            self._play(chosen)
            misses = 0 if self._best_ns < best_ns else misses + 1

    def _simplify(self, best: Sequence[Way]) -> None:
        """Replace the best plan by the simplest that is as fast: asked for and played until it is."""
        has_choice = self._ways.only is None and any(way.techniques for way in best)
        if not has_choice and len({way.num_layers for way in best}) == 1:
            return  # nothing recomputed that need not be, and as even as can be
        box = self._narrow(self._best_ns)
        assert box is not None
        if self._ways.only is not None and (box.high - box.low).max() == 0:
            return
        for _ in range(SIMPLER):
            program = Program(
                self._problem, self._ways, box, at_least_ns=self._bound_ns, within_ns=self._best_ns
            )
            program.add_paths(self._rows)
            program.hint(best)
            answer = program.simplest(self._limits_left())
            if answer.chosen is None or not answer.finished:
                return
            if self._play(answer.chosen) == self._best_ns:
                self._best = answer.chosen
                return

    def _limits_left(self) -> WorkLimits:
        return replace(self._limits, wall_clock_seconds=self._deadline - time.monotonic())

    def _play(self, chosen: Sequence[Way]) -> int:
        """Play a plan, learn its critical path, keep it when it is the best; return how long it takes."""
        assignment = assignment_of(chosen)
        played = play_step(self._problem, chunk_costs(self._problem, assignment))
        layers = [way.num_layers for way in chosen]
        self._rows = joined(self._rows, replayed_row(self._problem, played.path, layers))
        if played.makespan_ns < self._best_ns and fits_hosts(self._problem, assignment):
            self._best, self._best_ns = tuple(chosen), played.makespan_ns
        return played.makespan_ns

    def _narrow(self, within_ns: int) -> Box | None:
        return narrowed(self._problem, self._box, self._rows, capacity=self._capacity, within_ns=within_ns)

    def _conclude(self, cutoff_ns: int | None) -> Solution | Excluded:
        if self._best is None or (cutoff_ns is not None and self._best_ns > cutoff_ns):
            if self._best is None and cutoff_ns is None and self._bound_ns > serial_ns(self._problem):
                return Excluded(lower_bound_ns=None)
            return Excluded(lower_bound_ns=self._bound_ns)
        return Solution(
            assignment=assignment_of(self._best),
            makespan_ns=self._best_ns,
            lower_bound_ns=min(self._bound_ns, self._best_ns),
        )


def serial_ns(problem: PipelineProblem) -> int:
    """Return a time that no plan exceeds: everything one after the other, each layer its slowest way."""
    m, count = problem.shape.num_micro_batches, problem.shape.num_chunks
    parts = [problem.fixed_part(chunk) for chunk in range(count)]
    slowest = max(option.forward_ns + option.backward_ns for option in problem.options)
    passes = m * (sum(part.forward_ns + part.backward_ns for part in parts) + problem.num_layers * slowest)
    transfers = 2 * m * count * problem.transfer_ns
    once = sum(part.optimizer_ns + part.gather_ns + part.reduce_ns for part in parts)
    once += problem.num_layers * (problem.optimizer_ns + problem.gather_ns + problem.reduce_ns)
    return (
        passes
        + transfers
        + once
        + problem.barrier_ns
        + problem.tied_ns
        + (problem.gather_bucket_ns + problem.reduce_bucket_ns)
    )
