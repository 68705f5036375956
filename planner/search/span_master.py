"""A layout of a chain of several classes of layers: spans and replay, in rounds, until they agree.

Layers keep their order, so a plan is one span of consecutive layers per chunk. The program's step is at
least every path that it knows, so its optimum bounds the layout's from below. The replay of its answer
shows the path that it did not know; with that one added it is solved again.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import numpy as np

from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.steady import play_step
from planner.search.bounds import lower_bound_ns
from planner.search.capacity import even_chunks_fit, fits_at_all
from planner.search.hosts import fits_hosts
from planner.search.master import Excluded, Solution
from planner.search.memory_rows import memory_rows
from planner.search.paths import stage_paths
from planner.search.rows import Integers
from planner.search.solver import WorkLimits
from planner.search.span_places import placed
from planner.search.span_program import SpanProgram
from planner.search.span_stages import Limits, StageSizes, stage_sizes
from planner.search.span_start import SplitByHand
from planner.search.spans import PathTable, SpanFinder, Spans

LONGEST_STEP_NS: Final = 1 << 60
"""No step is looked for beyond 36 years."""
PATHS_PER_STAGE: Final = 3
"""Known paths to start with: for each stage the longest few of those that stay there."""
MOVES: Final = 40
"""Most plans that are tried by hand, each with one boundary between chunks moved."""
FEW_MOVES: Final = 8
"""The same of plans of several chunks per stage, where a good one is known already: mostly there is none."""


def solve_in_order(
    problem: PipelineProblem, *, cutoff_ns: int | None = None, limits: WorkLimits | None = None
) -> Solution | Excluded:
    """Return the fastest assignment of layers in their order, or that none takes at most ``cutoff_ns``.

    With several chunks per stage only chunks of as many layers, or one apart, are considered, those of
    both ends perhaps fewer. ``limits`` may end it before the proof.
    """
    bound = lower_bound_ns(problem)
    several = problem.shape.virtual_stages > 1 and not problem.shape.schedule.splits_backward
    if bound is None or not (even_chunks_fit(problem) if several else fits_at_all(problem)):
        return Excluded(lower_bound_ns=None)
    if cutoff_ns is not None and bound > cutoff_ns:
        return Excluded(lower_bound_ns=bound)
    return _Rounds(problem, bound, limits or WorkLimits()).run(cutoff_ns)


class _Rounds:
    """The rounds of one layout: known paths, the best replayed plan, the proven bound."""

    def __init__(self, problem: PipelineProblem, bound_ns: int, limits: WorkLimits) -> None:
        self._problem, self._limits = problem, limits
        self._deadline = time.monotonic() + limits.wall_clock_seconds
        self._bound_ns = bound_ns
        self._finder = SpanFinder(problem)
        self._best: Assignment | None = None
        self._best_ns = 0
        self._paths = _first_paths(problem)

    def run(self, cutoff_ns: int | None) -> Solution | Excluded:
        chunks = range(self._problem.shape.num_chunks)
        within = self._within(cutoff_ns)
        runs = self._narrowed([self._finder.runs(chunk) for chunk in chunks], within)
        if runs is None or self._stage_sizes(runs, within) is None:
            return self._conclude(within + 1, cutoff_ns)
        spans = [self._finder.fitting(chunk, runs[chunk]) for chunk in chunks]
        joined = self._narrowed(spans, within)
        if joined is None:
            nothing = cutoff_ns is None
            return Excluded(lower_bound_ns=None if nothing else max(self._bound_ns, within + 1))
        self._start(joined, moves=MOVES if cutoff_ns is None else FEW_MOVES)
        return self._rounds(joined, cutoff_ns)

    def _rounds(self, spans: list[Spans], cutoff_ns: int | None) -> Solution | Excluded:
        while True:
            within = self._within(cutoff_ns)
            choices = self._narrowed(spans, within)
            sizes = None if choices is None else self._stage_sizes(choices, within)
            if self._bound_ns > within or choices is None or sizes is None:
                return self._conclude(max(self._bound_ns, within + 1), cutoff_ns)
            program = SpanProgram(
                self._problem, choices, self._paths, at_least_ns=self._bound_ns, within_ns=within
            )
            program.hold(sizes)
            answer = program.least_time(self._limits_left())
            if answer.chosen is None and answer.finished and self._best is None and cutoff_ns is None:
                return Excluded(lower_bound_ns=None)
            self._bound_ns = max(self._bound_ns, answer.bound_ns)
            if answer.chosen is not None:
                self._take(choices, answer.chosen)
            if not answer.finished:
                return self._conclude(self._bound_ns, cutoff_ns)
            spans = choices

    def _take(self, spans: list[Spans], chosen: Sequence[int]) -> None:
        """Play the answer of the program, whose spans may lie elsewhere; where they join, its neighbours."""
        joined = placed(spans, chosen)
        if joined is None:
            self._play(spans, chosen)
        else:
            self._improve(spans, joined)

    def _limits_left(self) -> WorkLimits:
        return replace(self._limits, wall_clock_seconds=self._deadline - time.monotonic())

    def _within(self, cutoff_ns: int | None) -> int:
        """Return the longest step that is still of interest: shorter than the best, up to the cutoff."""
        limit = LONGEST_STEP_NS if cutoff_ns is None else cutoff_ns
        return limit if self._best is None else min(limit, self._best_ns - 1)

    def _narrowed(self, spans: list[Spans], within_ns: int) -> list[Spans] | None:
        """Drop spans that make some path or some stage's memory too large, and those that join no others.

        None when a chunk has nothing left.
        """
        return _narrowed(spans, self._limits_of(within_ns))

    def _limits_of(self, within_ns: int) -> list[Limits]:
        return _limits(self._problem, self._paths, within_ns)

    def _stage_sizes(self, spans: list[Spans], within_ns: int) -> StageSizes | None:
        """Return how many layers stages may hold in plans within a time, None when there is no such plan."""
        limits = self._limits_of(within_ns)
        return stage_sizes(self._problem.shape, spans, limits, num_layers=self._problem.num_layers)

    # --- by hand -------------------------------------------------------------------------------

    def _start(self, spans: list[Spans], *, moves: int) -> None:
        """Find a good plan by hand: chunks of as even work as can be, then boundaries moved."""
        if self._problem.shape.virtual_stages > 1:
            self._start_by_stages(spans, moves=moves)
        chosen = _evenly(spans)
        if chosen is not None:
            self._improve(spans, chosen)

    def _start_by_stages(self, spans: list[Spans], *, moves: int) -> None:
        """Find a good plan of several chunks per stage: stages of as even work as can be."""
        by_hand = SplitByHand(self._problem, self._finder, spans)
        sizes = by_hand.start()
        for _ in range(moves):
            if sizes is None:
                return
            self._replay(tuple(map(tuple, by_hand.spans(sizes[None]).counts.tolist())))
            sizes = by_hand.moved(sizes, self._paths)

    def _improve(self, spans: list[Spans], chosen: list[int]) -> None:
        """Play a plan and its neighbours as known paths shrink, and learn the path of each."""
        places = [_by_place(own) for own in spans]
        for _ in range(MOVES):
            before = self._best_ns if self._best is not None else LONGEST_STEP_NS
            if self._play(spans, chosen) >= before and self._best is not None:
                return
            moved = self._moved(spans, places, chosen)
            if moved is None:
                return
            chosen = moved

    def _moved(
        self, spans: list[Spans], places: "list[dict[tuple[int, int], int]]", chosen: list[int]
    ) -> list[int] | None:
        """Return the neighbour, one boundary moved by one layer, whose longest known path is shortest."""
        lengths = [
            own.only(np.array([number])).lengths_ns(chunk, self._paths)[0]
            for chunk, (own, number) in enumerate(zip(spans, chosen, strict=True))
        ]
        whole = self._paths.constant_ns + np.sum(lengths, axis=0)
        best, best_ns = None, int(whole.max())
        for chunk in range(len(spans) - 1):
            for pair in _shifts(spans, places, chosen, chunk):
                change = -lengths[chunk] - lengths[chunk + 1]
                for offset, number in enumerate(pair):
                    own = spans[chunk + offset].only(np.array([number]))
                    change = change + own.lengths_ns(chunk + offset, self._paths)[0]
                longest = int((whole + change).max())
                if longest < best_ns:
                    best, best_ns = (chunk, pair), longest
        if best is None:
            return None
        chunk, pair = best
        return [*chosen[:chunk], *pair, *chosen[chunk + 2 :]]

    def _play(self, spans: Sequence[Spans], chosen: Sequence[int]) -> int:
        """Play a plan, learn its critical path, keep it when it is the best; return how long it takes.

        Plans found by hand may break the memory of a stage of several chunks; they teach a path all
        the same.
        """
        assignment = tuple(
            tuple(own.counts[number].tolist()) for own, number in zip(spans, chosen, strict=True)
        )
        return self._replay(assignment)

    def _replay(self, assignment: Assignment) -> int:
        costs = chunk_costs(self._problem, assignment)
        played = play_step(self._problem, costs)
        layers = [sum(counts) for counts in assignment]
        self._paths = self._paths.joined(PathTable.of(self._problem, [played.path], layers=layers))
        stages = range(self._problem.shape.num_stages)
        fits = not _shares_memory(self._problem) or all(
            stage_peak_bytes(self._problem, costs, stage) <= self._problem.limit_bytes for stage in stages
        )
        fits = fits and fits_hosts(self._problem, assignment)
        if fits and (self._best is None or played.makespan_ns < self._best_ns):
            self._best, self._best_ns = assignment, played.makespan_ns
        return played.makespan_ns

    def _conclude(self, bound_ns: int, cutoff_ns: int | None) -> Solution | Excluded:
        if self._best is None or (cutoff_ns is not None and self._best_ns > cutoff_ns):
            return Excluded(lower_bound_ns=bound_ns)
        return Solution(
            assignment=self._best,
            makespan_ns=self._best_ns,
            lower_bound_ns=min(bound_ns, self._best_ns),
        )


def _first_paths(problem: PipelineProblem) -> PathTable:
    """Return for each stage the few paths that are longest when work is spread evenly."""
    by_stage = [stage_paths(problem, stage) for stage in range(problem.shape.num_stages)]
    table = PathTable.of(problem, [path for own in by_stage for path in own])
    share = len(problem.sequence) / problem.shape.num_chunks
    quick = [min(layers.options, key=lambda o: o.forward_ns + o.backward_ns) for layers in problem.classes]
    mean = [
        share * sum(getattr(quick[number], name) for number in problem.sequence) / len(problem.sequence)
        for name in ("forward_ns", "backward_ns")
    ]
    lengths = table.constant_ns + table.forward.sum(axis=1) * mean[0] + table.backward.sum(axis=1) * mean[1]
    ends = list(accumulate(map(len, by_stage), initial=0))
    kept = [
        own[place]
        for own, start, end in zip(by_stage, ends, ends[1:], strict=False)
        for place in np.argsort(-lengths[start:end], kind="stable")[:PATHS_PER_STAGE].tolist()
    ]
    return PathTable.of(problem, kept)


def first_limits(problem: PipelineProblem, within_ns: int) -> list[Limits]:
    """Return the limits that a search within a time begins with."""
    return _limits(problem, _first_paths(problem), within_ns)


def _limits(problem: PipelineProblem, paths: PathTable, within_ns: int) -> list[Limits]:
    """Return the limits of all paths, and of each stage's memory where that is no matter of one chunk."""
    limits = [_path_limits(problem, paths, within_ns)]
    if _shares_memory(problem):
        limits += [_memory_limits(problem, stage) for stage in range(problem.shape.num_stages)]
    return limits


def _path_limits(problem: PipelineProblem, paths: PathTable, within_ns: int) -> Limits:
    """Return that no known path is longer than a step may take.

    All layers are placed somewhere: what every chunk adds to a path at least for each is there in any case,
    and only what is beyond it counts.
    """
    least = {
        name: min(getattr(option, name) for layers in problem.classes for option in layers.options)
        for name in ("forward_ns", "backward_ns")
    }
    each = paths.forward * least["forward_ns"] + paths.backward * least["backward_ns"]
    common = np.zeros_like(paths.constant_ns) if paths.weight.any() else each.min(axis=1)
    return Limits(
        range(paths.forward.shape[1]),
        lambda spans, chunk: spans.lengths_ns(chunk, paths) - np.outer(spans.end - spans.start, common),
        within_ns - paths.constant_ns - common * problem.num_layers,
    )


def _shares_memory(problem: PipelineProblem) -> bool:
    """Whether a stage's memory is no matter of one chunk and the passes before its first gradient alone."""
    return problem.shape.virtual_stages > 1 or problem.shape.schedule.splits_backward


def _memory_limits(problem: PipelineProblem, stage: int) -> Limits:
    """Return that a stage of several chunks fits its memory at every moment at which it can peak."""
    rows = memory_rows(problem, stage)

    def held(spans: Spans, chunk: int) -> Integers:
        turn = problem.shape.turn_of(chunk)
        working = np.maximum(spans.working_bytes, rows.fixed_working[turn])
        bytes_held: Integers = (
            spans.static_bytes[:, None]
            + np.outer(spans.saved_bytes, rows.kept[:, turn])
            + np.outer(spans.held_bytes, rows.waiting[:, turn])
            + np.outer(working, rows.working_turn == turn)
        )
        return bytes_held

    own = problem.shape.chunks_of(stage)
    return Limits(own, held, problem.limit_bytes - rows.fixed_bytes)


def _narrowed(spans: list[Spans], limits: Sequence[Limits]) -> list[Spans] | None:
    """Drop spans that alone break a limit, the other chunks adding at least their least, and so on."""
    while True:
        joined = _joined(spans)
        if joined is None:
            return None
        spans = list(joined)
        for limit in limits:
            amounts = {chunk: limit.amounts(spans[chunk], chunk) for chunk in limit.chunks}
            least = {chunk: own.min(axis=0) for chunk, own in amounts.items()}
            room = limit.limits - np.sum(list(least.values()), axis=0)
            for chunk, own in amounts.items():
                spans[chunk] = spans[chunk].only((own - least[chunk] <= room).all(axis=1))
            if not all(map(len, spans)):
                return None
        if sum(map(len, spans)) == sum(map(len, joined)):
            return joined


def _joined(spans: Sequence[Spans]) -> list[Spans] | None:
    """Keep what the chain can reach from its start and from its end; None when a chunk has nothing left."""
    kept: list[Spans] = []
    reached = np.array([0], dtype=np.int64)
    for own in spans:
        kept.append(own.only(np.isin(own.start, reached)))
        reached = np.unique(kept[-1].end)
    if not len(kept[-1]):
        return None
    reached = np.unique(kept[-1].end)
    for chunk in reversed(range(len(kept))):
        kept[chunk] = kept[chunk].only(np.isin(kept[chunk].end, reached))
        reached = np.unique(kept[chunk].start)
    return kept if all(map(len, kept)) else None


def _evenly(spans: Sequence[Spans]) -> list[int] | None:
    """Return the spans that join into the chain with the least longest work of a chunk, the first such.

    Dynamic programming over boundaries: the least longest work up to each.
    """
    reached: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for own in spans:
        work = (own.forward_ns + own.backward_ns).tolist()
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        for number, (start, end) in enumerate(zip(own.start.tolist(), own.end.tolist(), strict=True)):
            if start not in reached:
                continue
            longest = max(reached[start][0], work[number])
            if end not in found or longest < found[end][0]:
                found[end] = (longest, (*reached[start][1], number))
        reached = found
    return list(min(reached.values())[1]) if reached else None


def _by_place(spans: Spans) -> dict[tuple[int, int], int]:
    """Return the quickest span of each run of layers by its start and end."""
    work = spans.forward_ns + spans.backward_ns
    places: dict[tuple[int, int], int] = {}
    for number in np.argsort(-work, kind="stable").tolist():
        places[int(spans.start[number]), int(spans.end[number])] = number
    return places


def _shifts(
    spans: Sequence[Spans], places: Sequence[dict[tuple[int, int], int]], chosen: Sequence[int], chunk: int
) -> list[tuple[int, int]]:
    """Return the spans of a chunk and the next one with the boundary between them moved by one layer."""
    own, after = spans[chunk], spans[chunk + 1]
    start, middle = int(own.start[chosen[chunk]]), int(own.end[chosen[chunk]])
    end = int(after.end[chosen[chunk + 1]])
    found = []
    for moved in (middle - 1, middle + 1):
        left, right = places[chunk].get((start, moved)), places[chunk + 1].get((moved, end))
        if left is not None and right is not None:
            found.append((left, right))
    return found
