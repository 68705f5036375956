"""A layout of several chunks per stage, solved exactly: points and replay, in rounds, until they agree.

The program's step is at least every path that it knows, so its optimum bounds the layout's from below.
The replay of its answer shows the path that it did not know; with that one added it is solved again.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs
from planner.cost.steady import StepPath, play_step
from planner.search.bounds import lower_bound_ns
from planner.search.even_fill import EvenFill, fills_evenly
from planner.search.hosts import fits_hosts
from planner.search.master import Excluded, Solution
from planner.search.paths import stage_paths
from planner.search.point_choices import (
    Choices,
    all_choices,
    narrowed,
    point_lengths,
    quickest_points,
    with_path,
)
from planner.search.point_program import PointProgram
from planner.search.rows import Integers, PathRows, joined, path_rows, replayed_row
from planner.search.solver import WorkLimits
from planner.search.stage_points import StagePoint

LONGEST_STEP_NS: Final = 1 << 60
"""No step is looked for beyond 36 years."""
LOOK_WITHIN: Final = (1.02, 1.25, 2.0)
"""Where nobody says how long a step may take, it is looked for within so many times its bound first.

The fewer points of a stage leave a step that short, the less work is left.
"""
DESCENTS: Final = 6
"""Most plans that are tried by hand in a row; each one shows a path for a small part of a program's work."""
SIMPLER: Final = 20
"""Rounds in which a simpler plan is asked for that is as fast as the best one."""


def solve_evenly(
    problem: PipelineProblem, *, cutoff_ns: int | None = None, limits: WorkLimits | None = None
) -> Solution | Excluded:
    """Return the fastest assignment whose stages spread their layers evenly over their chunks.

    Or that none takes at most ``cutoff_ns``. ``limits`` may end it before the proof. Of equally fast ones it
    is any: see `simplest_evenly`.
    """
    bound = lower_bound_ns(problem)
    if bound is None:
        return Excluded(lower_bound_ns=None)
    if cutoff_ns is not None and bound > cutoff_ns:
        return Excluded(lower_bound_ns=bound)
    if fills_evenly(problem):
        bound = EvenFill(problem).least_ns(bound) or bound
    rows, limits = _known_rows(problem), limits or WorkLimits()
    if cutoff_ns is not None:
        return _solved_within(problem, rows, bound, cutoff_ns, limits)
    for times in LOOK_WITHIN:
        within = int(times * bound)
        solved = _solved_within(problem, rows, bound, within, limits)
        if isinstance(solved, Solution) or solved.lower_bound_ns is None or solved.lower_bound_ns <= within:
            return solved
    return _solved_within(problem, rows, bound, LONGEST_STEP_NS, limits)


def _solved_within(
    problem: PipelineProblem, rows: PathRows, bound_ns: int, within_ns: int, limits: WorkLimits
) -> Solution | Excluded:
    choices = all_choices(problem, rows, within_ns) if bound_ns <= within_ns else None
    if choices is None:
        bound = max(bound_ns, within_ns + 1)
        return Excluded(lower_bound_ns=bound if within_ns < LONGEST_STEP_NS else None)
    return _Rounds(problem, choices, rows, bound_ns, limits).run(within_ns)


def simplest_evenly(
    problem: PipelineProblem, solution: Solution, *, limits: WorkLimits | None = None
) -> Assignment:
    """Return the simplest assignment as fast as a solution: asked for and played until one is.

    That of fewest techniques, then the most even one. ``limits`` may end it before, with the solution's own.
    """
    limits = limits or WorkLimits()
    deadline = time.monotonic() + limits.wall_clock_seconds
    rows, within = solution.paths or _known_rows(problem), solution.makespan_ns
    choices = all_choices(problem, rows, within)
    for _ in range(SIMPLER):
        if choices is None or all(len(own.points) == 1 for own in choices):
            break
        program = PointProgram(problem, choices, rows, at_least_ns=within, within_ns=within)
        answer = program.simplest(replace(limits, wall_clock_seconds=deadline - time.monotonic()))
        if answer.chosen is None or not answer.finished:
            break
        played, row = _played(problem, answer.chosen)
        assignment = _assignment(problem, answer.chosen)
        if played.makespan_ns == within and fits_hosts(problem, assignment):
            return assignment
        rows = joined(rows, row)
        choices = narrowed(with_path(choices, problem, row), problem, rows, within)
    return solution.assignment


def _known_rows(problem: PipelineProblem) -> PathRows:
    stages = range(problem.shape.num_stages)
    return path_rows(problem, [path for stage in stages for path in stage_paths(problem, stage)])


class _Rounds:
    """The rounds of one layout: known paths, the best replayed plan, the proven bound."""

    def __init__(
        self,
        problem: PipelineProblem,
        choices: Choices,
        rows: PathRows,
        bound_ns: int,
        limits: WorkLimits,
    ) -> None:
        self._problem, self._choices, self._rows, self._limits = problem, choices, rows, limits
        self._deadline = time.monotonic() + limits.wall_clock_seconds
        self._bound_ns = bound_ns
        self._quickest = [quickest_points(own) for own in choices]
        self._best: tuple[StagePoint, ...] | None = None
        self._best_ns = 0

    def run(self, limit_ns: int) -> Solution | Excluded:
        """Return the best plan within a time, for which the choices are good."""
        self._start()
        while True:
            within = limit_ns if self._best is None else min(limit_ns, self._best_ns - 1)
            choices = narrowed(self._choices, self._problem, self._rows, within)
            if self._bound_ns > within or choices is None:
                return self._conclude(max(self._bound_ns, within + 1), limit_ns)
            self._choices = choices
            program = PointProgram(
                self._problem, choices, self._rows, at_least_ns=self._bound_ns, within_ns=within
            )
            left = replace(self._limits, wall_clock_seconds=self._deadline - time.monotonic())
            answer = program.least_time(left)
            self._bound_ns = max(self._bound_ns, answer.bound_ns)
            if answer.chosen is not None:
                self._play(answer.chosen)
                self._descend(answer.chosen)
            if not answer.finished:
                return self._conclude(self._bound_ns, limit_ns)

    def _start(self) -> None:
        """Find a good plan by hand: layers dealt to the lightest stage, then moved while that helps."""
        chosen = self._dealt()
        if chosen is None:
            return
        self._play(chosen)
        self._descend(chosen)

    def _descend(self, chosen: tuple[StagePoint, ...]) -> None:
        """Move from plan to plan as known paths shrink, and learn the path of each."""
        for _ in range(DESCENTS):
            moved = self._moved(chosen)
            if moved is None:
                return
            chosen = moved
            self._play(chosen)

    def _dealt(self) -> tuple[StagePoint, ...] | None:
        counts = [int(own.layers.min()) for own in self._choices]
        most = [int(own.layers.max()) for own in self._choices]
        for _ in range(self._problem.num_layers - sum(counts)):
            open_stages = [stage for stage, count in enumerate(counts) if count < most[stage]]
            if not open_stages:
                return None
            lightest = min(open_stages, key=lambda stage: (self._work_ns(stage, counts[stage]), -stage))
            counts[lightest] += 1
        dealt = [own.get(count) for own, count in zip(self._quickest, counts, strict=True)]
        found = tuple(point for point in dealt if point is not None)
        return found if len(found) == len(dealt) else None

    def _work_ns(self, stage: int, num_layers: int) -> int:
        option = self._problem.options[0]
        chunks = self._problem.shape.chunks_of(stage)
        parts = [self._problem.fixed_part(chunk) for chunk in chunks]
        fixed = sum(part.forward_ns + part.backward_ns for part in parts)
        return fixed + num_layers * (option.forward_ns + option.backward_ns)

    def _moved(self, chosen: Sequence[StagePoint]) -> tuple[StagePoint, ...] | None:
        """Return the neighbour, one layer moved between stages, whose longest known path is shortest."""
        lengths = [self._lengths(stage, point) for stage, point in enumerate(chosen)]
        whole = self._rows.constant_ns + np.sum(lengths, axis=0)
        fewer, more = self._steps(chosen, -1), self._steps(chosen, 1)
        if not fewer or not more:
            return None
        less, greater = (
            np.array([self._lengths(stage, point) - lengths[stage] for stage, point in steps.items()])
            for steps in (fewer, more)
        )
        longest = (whole + less[:, None] + greater[None]).max(axis=2)
        longest[np.array(list(fewer))[:, None] == np.array(list(more))[None]] = LONGEST_STEP_NS
        source, target = divmod(int(longest.argmin()), len(more))
        if longest[source, target] >= whole.max():
            return None
        moved = list(chosen)
        for steps, place in ((fewer, source), (more, target)):
            stage = list(steps)[place]
            moved[stage] = steps[stage]
        return tuple(moved)

    def _steps(self, chosen: Sequence[StagePoint], change: int) -> dict[int, StagePoint]:
        """Return the points of the stages that can hold so many layers more (or fewer)."""
        steps = {
            stage: own.get(point.num_layers + change)
            for stage, (own, point) in enumerate(zip(self._quickest, chosen, strict=True))
        }
        return {stage: point for stage, point in steps.items() if point is not None}

    def _lengths(self, stage: int, point: StagePoint) -> Integers:
        """Return what a point adds to each known path."""
        own = self._choices[stage]
        place = own.places.get(point)
        found: Integers = (
            point_lengths(self._problem, self._rows, stage, [point])[0]
            if place is None
            else own.lengths_ns[place]
        )
        return found

    def _play(self, chosen: Sequence[StagePoint]) -> None:
        """Play a plan, learn its critical path, keep it when it is the best."""
        played, row = _played(self._problem, chosen)
        self._rows = joined(self._rows, row)
        self._choices = with_path(self._choices, self._problem, row)
        is_faster = self._best is None or played.makespan_ns < self._best_ns
        if is_faster and fits_hosts(self._problem, _assignment(self._problem, chosen)):
            self._best, self._best_ns = tuple(chosen), played.makespan_ns

    def _conclude(self, bound_ns: int, limit_ns: int) -> Solution | Excluded:
        if self._best is None or self._best_ns > limit_ns:
            return Excluded(lower_bound_ns=bound_ns if bound_ns <= LONGEST_STEP_NS else None)
        return Solution(
            assignment=_assignment(self._problem, self._best),
            makespan_ns=self._best_ns,
            lower_bound_ns=min(bound_ns, self._best_ns),
            paths=self._rows,
        )


def _played(problem: PipelineProblem, chosen: Sequence[StagePoint]) -> tuple[StepPath, PathRows]:
    """Return a plan's step, and its critical path as a row."""
    assignment = _assignment(problem, chosen)
    played = play_step(problem, chunk_costs(problem, assignment))
    return played, replayed_row(problem, played.path, [sum(counts) for counts in assignment])


def _assignment(problem: PipelineProblem, chosen: Sequence[StagePoint]) -> Assignment:
    shape = problem.shape
    return tuple(
        chosen[shape.stage_of(chunk)].counts[shape.turn_of(chunk)] for chunk in range(shape.num_chunks)
    )
