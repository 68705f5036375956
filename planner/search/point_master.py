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
from planner.cost.steady import play_step
from planner.search.bounds import lower_bound_ns
from planner.search.hosts import fits_hosts
from planner.search.master import Excluded, Solution
from planner.search.paths import stage_paths
from planner.search.point_program import PointProgram, point_lengths
from planner.search.rows import Integers, PathRows, joined, path_rows, replayed_row
from planner.search.solver import WorkLimits
from planner.search.stage_points import StagePoint, StagePoints

LONGEST_STEP_NS: Final = 1 << 60
"""No step is looked for beyond 36 years."""
DESCENTS: Final = 6
"""Most plans that are tried by hand in a row; each one shows a path for a small part of a program's work."""
SIMPLER: Final = 20
"""Rounds in which a simpler plan is asked for that is as fast as the best one."""


def solve_evenly(
    problem: PipelineProblem, *, cutoff_ns: int | None = None, limits: WorkLimits | None = None
) -> Solution | Excluded:
    """Return the fastest assignment whose stages spread their layers evenly over their chunks.

    Or that none takes at most ``cutoff_ns``. ``limits`` may end it before the proof.
    """
    bound = lower_bound_ns(problem)
    points = StagePoints(problem)
    if bound is None or _cannot_hold(problem, points):
        return Excluded(lower_bound_ns=None)
    if cutoff_ns is not None and bound > cutoff_ns:
        return Excluded(lower_bound_ns=bound)
    return _Rounds(problem, points, bound, limits or WorkLimits()).run(cutoff_ns)


def _cannot_hold(problem: PipelineProblem, points: StagePoints) -> bool:
    stages = range(problem.shape.num_stages)
    most = [points.most(stage) for stage in stages]
    return any(most[stage] < points.fewest(stage) for stage in stages) or sum(most) < problem.num_layers


class _Rounds:
    """The rounds of one layout: known paths, the best replayed plan, the proven bound."""

    def __init__(
        self, problem: PipelineProblem, points: StagePoints, bound_ns: int, limits: WorkLimits
    ) -> None:
        self._problem, self._points, self._limits = problem, points, limits
        self._deadline = time.monotonic() + limits.wall_clock_seconds
        self._bound_ns = bound_ns
        self._best: tuple[StagePoint, ...] | None = None
        self._best_ns = 0
        self._known_lengths: dict[tuple[int, StagePoint], Integers] = {}
        stages = range(problem.shape.num_stages)
        self._rows: PathRows = path_rows(
            problem, [path for stage in stages for path in stage_paths(problem, stage)]
        )

    def run(self, cutoff_ns: int | None) -> Solution | Excluded:
        if cutoff_ns is not None and self._choices(cutoff_ns) is None:
            return Excluded(lower_bound_ns=max(self._bound_ns, cutoff_ns + 1))
        self._start()
        while True:
            within = self._within(cutoff_ns)
            choices = self._choices(within)
            if self._bound_ns > within or choices is None:
                if self._best is not None:
                    self._simplify(self._best)
                return self._conclude(max(self._bound_ns, within + 1), cutoff_ns)
            program = self._program(choices, within)
            answer = program.least_time(self._limits_left())
            self._bound_ns = max(self._bound_ns, answer.bound_ns)
            if answer.chosen is not None:
                self._play(answer.chosen)
                self._descend(answer.chosen)
            if not answer.finished:
                return self._conclude(self._bound_ns, cutoff_ns)

    def _program(self, choices: list[list[StagePoint]], within_ns: int) -> PointProgram:
        return PointProgram(
            self._problem, choices, self._rows, at_least_ns=self._bound_ns, within_ns=within_ns
        )

    def _limits_left(self) -> WorkLimits:
        return replace(self._limits, wall_clock_seconds=self._deadline - time.monotonic())

    def _simplify(self, best: tuple[StagePoint, ...]) -> None:
        """Replace the best plan by the simplest that is as fast: asked for and played until it is."""
        for _ in range(SIMPLER):
            choices = self._choices(self._best_ns)
            assert choices is not None
            if all(len(own) == 1 for own in choices):
                return
            program = self._program(choices, self._best_ns)
            program.hint(best)
            answer = program.simplest(self._limits_left())
            if answer.chosen is None or not answer.finished:
                return
            if self._play(answer.chosen) == self._best_ns:
                self._best = answer.chosen
                return

    def _within(self, cutoff_ns: int | None) -> int:
        """Return the longest step that is still of interest: shorter than the best, up to the cutoff."""
        limit = LONGEST_STEP_NS if cutoff_ns is None else cutoff_ns
        return limit if self._best is None else min(limit, self._best_ns - 1)

    def _choices(self, within_ns: int) -> list[list[StagePoint]] | None:
        """Return the points of each stage that leave a step within a limit, None where a stage has none."""
        stages = range(self._problem.shape.num_stages)
        ranges = [(self._points.fewest(stage), self._points.most(stage)) for stage in stages]
        choices = [
            [point for n in range(low, high + 1) for point in self._points.of(stage, n)]
            for stage, (low, high) in enumerate(ranges)
        ]
        return _narrowed(self._problem, choices, self._rows, within_ns)

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
        stages = range(self._problem.shape.num_stages)
        counts = [self._points.fewest(stage) for stage in stages]
        most = [self._points.most(stage) for stage in stages]
        for _ in range(self._problem.num_layers - sum(counts)):
            open_stages = [stage for stage in stages if counts[stage] < most[stage]]
            if not open_stages:
                return None
            lightest = min(open_stages, key=lambda stage: (self._work_ns(stage, counts[stage]), -stage))
            counts[lightest] += 1
        return tuple(self._quickest(stage, counts[stage]) for stage in stages)

    def _work_ns(self, stage: int, num_layers: int) -> int:
        option = self._problem.options[0]
        chunks = self._problem.shape.chunks_of(stage)
        parts = [self._problem.fixed_part(chunk) for chunk in chunks]
        fixed = sum(part.forward_ns + part.backward_ns for part in parts)
        return fixed + num_layers * (option.forward_ns + option.backward_ns)

    def _quickest(self, stage: int, num_layers: int) -> StagePoint:
        return min(self._points.of(stage, num_layers), key=lambda point: point.techniques)

    def _moved(self, chosen: Sequence[StagePoint]) -> tuple[StagePoint, ...] | None:
        """Return the neighbour, one layer moved between stages, whose longest known path is shortest."""
        lengths = [self._lengths(stage, point) for stage, point in enumerate(chosen)]
        whole = self._rows.constant_ns + np.sum(lengths, axis=0)
        fewer, more = self._steps(chosen, -1), self._steps(chosen, 1)
        best, best_ns = None, int(whole.max())
        for source, less in fewer.items():
            without = whole + self._lengths(source, less) - lengths[source]
            for target, greater in more.items():
                if target == source:
                    continue
                moved_ns = int((without + self._lengths(target, greater) - lengths[target]).max())
                if moved_ns < best_ns:
                    best, best_ns = (source, target), moved_ns
        if best is None:
            return None
        moved = list(chosen)
        moved[best[0]], moved[best[1]] = fewer[best[0]], more[best[1]]
        return tuple(moved)

    def _steps(self, chosen: Sequence[StagePoint], change: int) -> dict[int, StagePoint]:
        """Return the points of the stages that can hold so many layers more (or fewer)."""
        wanted = {stage: point.num_layers + change for stage, point in enumerate(chosen)}
        return {
            stage: self._quickest(stage, count)
            for stage, count in wanted.items()
            if count >= self._points.fewest(stage) and self._points.of(stage, count)
        }

    def _lengths(self, stage: int, point: StagePoint) -> Integers:
        """Return what a point adds to each known path; kept until another path is known."""
        key = (stage, point)
        if key not in self._known_lengths:
            self._known_lengths[key] = point_lengths(self._problem, self._rows, stage, point)
        return self._known_lengths[key]

    def _play(self, chosen: Sequence[StagePoint]) -> int:
        """Play a plan, learn its critical path, keep it when it is the best; return how long it takes."""
        assignment = _assignment(self._problem, chosen)
        played = play_step(self._problem, chunk_costs(self._problem, assignment))
        layers = [sum(counts) for counts in assignment]
        self._rows = joined(self._rows, replayed_row(self._problem, played.path, layers))
        self._known_lengths.clear()
        is_faster = self._best is None or played.makespan_ns < self._best_ns
        if is_faster and fits_hosts(self._problem, assignment):
            self._best, self._best_ns = tuple(chosen), played.makespan_ns
        return played.makespan_ns

    def _conclude(self, bound_ns: int, cutoff_ns: int | None) -> Solution | Excluded:
        if self._best is None or (cutoff_ns is not None and self._best_ns > cutoff_ns):
            return Excluded(lower_bound_ns=bound_ns if bound_ns <= LONGEST_STEP_NS else None)
        return Solution(
            assignment=_assignment(self._problem, self._best),
            makespan_ns=self._best_ns,
            lower_bound_ns=min(bound_ns, self._best_ns),
        )


def _narrowed(
    problem: PipelineProblem, choices: list[list[StagePoint]], rows: PathRows, within_ns: int
) -> list[list[StagePoint]] | None:
    """Drop points whose stage alone makes some path too long, whatever the other stages hold.

    On every path the other stages add at least their least; layers must all be placed, so a stage
    that holds few makes others hold more: both are used until nothing changes.
    """
    lengths = [[point_lengths(problem, rows, s, point) for point in own] for s, own in enumerate(choices)]
    while True:
        if any(not own for own in choices):
            return None
        least = [np.minimum.reduce(own) for own in lengths]
        room = within_ns - rows.constant_ns - np.sum(least, axis=0)
        most = sum(max(point.num_layers for point in own) for own in choices)
        fewest = sum(min(point.num_layers for point in own) for own in choices)
        kept_choices: list[list[StagePoint]] = []
        kept_lengths = []
        for stage, own in enumerate(choices):
            high = max(point.num_layers for point in own)
            low = min(point.num_layers for point in own)
            kept = [
                number
                for number, point in enumerate(own)
                if (lengths[stage][number] - least[stage] <= room).all()
                and most - high + point.num_layers >= problem.num_layers
                and fewest - low + point.num_layers <= problem.num_layers
            ]
            kept_choices.append([own[number] for number in kept])
            kept_lengths.append([lengths[stage][number] for number in kept])
        if sum(map(len, kept_choices)) == sum(map(len, choices)):
            return choices
        choices, lengths = kept_choices, kept_lengths


def _assignment(problem: PipelineProblem, chosen: Sequence[StagePoint]) -> Assignment:
    shape = problem.shape
    return tuple(
        chosen[shape.stage_of(chunk)].counts[shape.turn_of(chunk)] for chunk in range(shape.num_chunks)
    )
