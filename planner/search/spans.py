"""What a chunk of a chain of several classes can hold: consecutive layers, and a way to run each.

All figures are whole nanoseconds and bytes, without the chunk's fixed part. Arrays are indexed
[span] or [span, way of a layer]; a way is an option of a class, in the order of an assignment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from planner.cost.critical_path import PathCounts
from planner.cost.pipeline import LayerClass, PipelineProblem
from planner.search.capacity import chunk_sizes
from planner.search.orders import forwards_before_first_backward
from planner.search.rows import Integers, fewest_layers
from planner.search.stage import techniques, undominated
from planner.strategy import RecomputeMode

MOST_MIXES: Final = 20_000
"""Mixes of options that are tried for one span; beyond them classes are recomputed one after the other."""


Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spans:
    """Ways to fill one chunk: layers ``start`` to ``end`` (not included), ``counts`` of them by way."""

    start: Integers
    end: Integers
    counts: Integers
    forward_ns: Integers
    backward_ns: Integers
    saved_bytes: Integers
    working_bytes: Integers
    static_bytes: Integers
    optimizer_ns: Integers
    gather_ns: Integers
    reduce_ns: Integers
    weight_ns: Integers
    held_bytes: Integers
    techniques: Integers
    host_bytes: Integers
    host_saved_bytes: Integers

    def __len__(self) -> int:
        """Return how many ways there are."""
        return len(self.start)

    def only(self, chosen: Integers | Mask) -> Self:
        """Return some of the ways, by number or by mask."""
        return type(self)(**{entry.name: getattr(self, entry.name)[chosen] for entry in fields(self)})

    def lengths_ns(self, chunk: int, paths: "PathTable") -> Integers:
        """Return what each way adds to each path: [span, path]."""
        durations = [self.forward_ns, self.backward_ns, self.gather_ns, self.reduce_ns, self.optimizer_ns]
        passes = [paths.forward, paths.backward, paths.gather, paths.reduce, paths.optimizer]
        if paths.weight.any():
            durations.append(self.weight_ns)
            passes.append(paths.weight)
        added = sum(np.outer(each, counts[:, chunk]) for each, counts in zip(durations, passes, strict=True))
        empty = np.outer(self.start == self.end, paths.relief_ns[:, chunk])
        lengths: Integers = added - empty
        return lengths


@dataclass(frozen=True, kw_only=True, slots=True)
class PathTable:
    """Known paths: how often each duration of each chunk lies on them ([path, chunk]), and their rest.

    ``constant_ns`` holds the chunks' fixed parts too. A path that may wait for a bucket of a chunk has
    ``relief_ns`` for it: by so much it may be shorter once that chunk holds no layer.
    """

    forward: Integers
    backward: Integers
    gather: Integers
    reduce: Integers
    optimizer: Integers
    weight: Integers
    """Gradients of weights passed by themselves, less those left out; none unless a schedule parts them."""
    relief_ns: Integers
    constant_ns: Integers

    @classmethod
    def of(
        cls, problem: PipelineProblem, paths: Sequence[PathCounts], *, layers: Sequence[int] | None = None
    ) -> Self:
        """Return paths as a table; ``layers`` per chunk of the plan whose replay showed them.

        A chunk that holds none in another plan may have nothing to gather or to reduce there, and then
        waits for no bucket. Without ``layers`` no empty chunk shortens the paths.
        """
        names = ("forward", "backward", "gather", "reduce", "optimizer")
        tables = {name: np.array([getattr(path, name) for path in paths], dtype=np.int64) for name in names}
        nothing = (0,) * problem.shape.num_chunks
        tables["weight"] = np.array([path.weight or nothing for path in paths], dtype=np.int64)
        chunks = range(problem.shape.num_chunks)
        parts = [problem.fixed_part(chunk) for chunk in chunks]
        constant = np.array([path.constant_ns for path in paths], dtype=np.int64)
        for name, table in tables.items():
            constant = constant + table @ np.array(
                [getattr(part, f"{name}_ns") for part in parts], dtype=np.int64
            )
        buckets = problem.gather_bucket_ns * problem.gather_overlaps
        buckets += problem.reduce_bucket_ns * problem.reduce_overlaps
        held = layers or [0] * len(chunks)
        relief = [buckets if held[chunk] and not problem.minimum_layers(chunk) else 0 for chunk in chunks]
        return cls(
            **tables,
            relief_ns=np.tile(np.array(relief, dtype=np.int64), (len(paths), 1)),
            constant_ns=constant,
        )

    def joined(self, other: Self) -> Self:
        """Return the paths of both."""
        return type(self)(
            **{
                entry.name: np.concatenate((getattr(self, entry.name), getattr(other, entry.name)))
                for entry in fields(self)
            }
        )


class SpanFinder:
    """Finds the spans of one problem's chunks."""

    def __init__(self, problem: PipelineProblem) -> None:
        self._problem = problem
        self._classes = problem.classes
        self._num_options = len(problem.classes[0].options)
        self._splits = problem.shape.schedule.splits_backward
        self._prefix = prefix_counts(problem)
        self._figures = _WayFigures.of(problem.classes)

    def runs(self, chunk: int) -> Spans:
        """Return every run of layers that a chunk can hold, with times and bytes that no way undercuts.

        With one chunk per stage that is any run that leaves enough layers to the others; with several,
        chunks are as even as they can be.
        """
        start, end = self._runs(chunk)
        spans = self.quickest(start, end)
        inputs, weight = self._least(spans, "inputs_ns"), self._least(spans, "weight_ns")
        whole = self._least(spans, "backward_ns") if not self._splits else inputs + weight
        return replace(
            spans,
            forward_ns=self._least(spans, "forward_ns"),
            backward_ns=whole,
            weight_ns=weight,
            saved_bytes=self._least(spans, "saved_bytes"),
            held_bytes=self._least(spans, "held_bytes"),
            working_bytes=self._least_working(spans),
        )

    def quickest(self, start: Integers, end: Integers) -> Spans:
        """Return runs of layers with each layer run the quickest way."""
        return self._quickest(start, end, self._prefix[end] - self._prefix[start])

    def _quickest(self, start: Integers, end: Integers, per_class: Integers) -> Spans:
        """Return runs of layers with each layer run the quickest way."""
        counts = np.zeros((len(start), len(self._classes) * self._num_options), dtype=np.int64)
        for number, layers in enumerate(self._classes):
            counts[:, number * self._num_options + _quickest(layers)] = per_class[:, number]
        return self._spans(start, end, counts)

    def _least(self, spans: Spans, name: str) -> Integers:
        """Return the least of a duration over all ways to run the layers of each span."""
        least = [min(getattr(option, name) for option in layers.options) for layers in self._classes]
        summed: Integers = self._per_class(spans) @ np.array(least, dtype=np.int64)
        return summed

    def _least_working(self, spans: Spans) -> Integers:
        """Return the least working memory over all ways to run the layers of each span."""
        least = [min(option.working_bytes for option in layers.options) for layers in self._classes]
        working: Integers = np.where(self._per_class(spans) > 0, least, 0).max(axis=1, initial=0)
        return working

    def fitting(self, chunk: int, runs: Spans) -> Spans:
        """Return the ways to run some of these runs that a search needs to know.

        With one chunk per stage its memory is its own affair: the undominated ways that fit. With several,
        and where gradients of weights come later, each run's ways from none recomputed to all.
        """
        per_class = self._per_class(runs)
        quickest = self._quickest(runs.start, runs.end, per_class)
        if self._problem.shape.virtual_stages == 1 and not self._splits:
            return self._undominated_fitting(chunk, quickest)
        if self._num_options == 1:
            return quickest
        return self._gathered(quickest, [self._ladder(counts) for counts in per_class.tolist()])

    def _undominated_fitting(self, chunk: int, quickest: Spans) -> Spans:
        settled = self._fits(chunk, quickest)
        if self._num_options == 1:
            return quickest.only(settled)
        if not self._forwards_agree:
            settled = np.zeros(len(quickest), dtype=np.bool_)
        tight = quickest.only(~settled)
        mixes = [self._fitting_mixes(chunk, counts) for counts in self._per_class(tight).tolist()]
        return _concatenated(quickest.only(settled), self._gathered(tight, mixes))

    @property
    def _forwards_agree(self) -> bool:
        """Whether options differ in backward passes alone: then the quickest one is best where it fits."""
        return all(
            len({option.forward_ns for option in layers.options}) == 1
            and layers.options[_quickest(layers)].recompute.mode is RecomputeMode.NONE
            for layers in self._classes
        )

    def _runs(self, chunk: int) -> tuple[Integers, Integers]:
        """Return the starts and ends of the runs of layers that a chunk can hold."""
        fewest, total = fewest_layers(self._problem), self._problem.num_layers
        first, last = sum(fewest[:chunk]), total - sum(fewest[chunk + 1 :])
        start, end = np.meshgrid(
            np.arange(first, last + 1, dtype=np.int64), np.arange(first, last + 1, dtype=np.int64)
        )
        low, high = self._sizes(chunk, fewest[chunk])
        kept = (end - start >= low) & (end - start <= high)
        if chunk == 0:
            kept &= start == 0
        if chunk == self._problem.shape.num_chunks - 1:
            kept &= end == total
        return start[kept], end[kept]

    def _sizes(self, chunk: int, fewest: int) -> tuple[int, int]:
        """Return the fewest and most layers of a chunk."""
        if self._problem.shape.virtual_stages == 1:
            return fewest, self._problem.num_layers
        return chunk_sizes(self._problem)[chunk]

    def _per_class(self, spans: Spans) -> Integers:
        """Return how many layers of each class each span holds: [span, class]."""
        by_class = spans.counts.reshape(len(spans), len(self._classes), self._num_options)
        summed: Integers = by_class.sum(axis=2)
        return summed

    def _fits(self, chunk: int, spans: Spans) -> Mask:
        """Return which spans fit the stage of their chunk, the only one on it."""
        part = self._problem.fixed_part(chunk)
        kept = forwards_before_first_backward(self._problem.shape, chunk)
        room = self._problem.limit_bytes - self._problem.base_bytes - part.static_bytes
        working = np.maximum(spans.working_bytes, part.working_bytes)
        fits: Mask = spans.static_bytes + kept * (spans.saved_bytes + part.saved_bytes) + working <= room
        return fits

    def _fitting_mixes(self, chunk: int, per_class: Sequence[int]) -> list[list[int]]:
        """Return the undominated mixes of options for so many layers of each class that fit."""
        mixes = np.array(list(self._mixes(per_class)), dtype=np.int64)
        place = np.zeros(len(mixes), dtype=np.int64)
        spans = self._spans(place, place, mixes)
        spans = spans.only(self._fits(chunk, spans))
        figures = (spans.forward_ns, spans.backward_ns, spans.techniques, spans.host_saved_bytes)
        compared = np.column_stack(figures)
        chosen: list[list[int]] = spans.counts[undominated(compared)].tolist() if len(spans) else []
        return chosen

    def _mixes(self, per_class: Sequence[int]) -> Iterator[list[int]]:
        """Yield the ways to give every layer an option; where they are too many, class by class."""
        choices = [list(_compositions(count, self._num_options)) for count in per_class]
        size = 1
        for own in choices:
            size *= len(own)
        if size > MOST_MIXES:
            yield from self._ladder(per_class)
            return
        for mix in product(*choices):
            yield [count for own in mix for count in own]

    def _ladder(self, per_class: Sequence[int]) -> list[list[int]]:
        """Return mixes from all layers run the quickest way to all the most frugal way, one more at a time.

        Those layers change first that free most bytes per nanosecond.
        """
        changes = []
        for number, (count, layers) in enumerate(zip(per_class, self._classes, strict=True)):
            quick, frugal = _quickest(layers), _most_frugal(layers)
            if quick != frugal:
                before, after = layers.options[quick], layers.options[frugal]
                lost = after.forward_ns + after.backward_ns - before.forward_ns - before.backward_ns
                freed = before.saved_bytes - after.saved_bytes
                changes += [(lost / max(freed, 1), number, quick, frugal)] * count
        mix = [0] * (len(self._classes) * self._num_options)
        for number, (count, layers) in enumerate(zip(per_class, self._classes, strict=True)):
            mix[number * self._num_options + _quickest(layers)] = count
        ladder = [list(mix)]
        for _, number, quick, frugal in sorted(changes):
            mix[number * self._num_options + quick] -= 1
            mix[number * self._num_options + frugal] += 1
            ladder.append(list(mix))
        return ladder

    def _gathered(self, runs: Spans, mixes: Sequence[Sequence[Sequence[int]]]) -> Spans:
        """Return spans with the given mixes of each run."""
        number = [place for place, own in enumerate(mixes) for _ in own]
        counts = np.array([mix for own in mixes for mix in own], dtype=np.int64)
        width = len(self._classes) * self._num_options
        return self._spans(runs.start[number], runs.end[number], counts.reshape(len(number), width))

    def _spans(self, start: Integers, end: Integers, counts: Integers) -> Spans:
        return Spans(start=start, end=end, counts=counts, **self._figures.added(counts))


@dataclass(frozen=True, kw_only=True, slots=True)
class _WayFigures:
    """The figures of one layer by way: ``added`` sums them up over a span."""

    figures: dict[str, Integers]
    working_bytes: Integers

    @classmethod
    def of(cls, classes: Sequence[LayerClass]) -> Self:
        ways = [(layers, option) for layers in classes for option in layers.options]
        names = ("forward_ns", "backward_ns", "saved_bytes", "weight_ns", "held_bytes", "host_saved_bytes")
        held = ("static_bytes", "host_bytes", "optimizer_ns", "gather_ns", "reduce_ns")
        figures = {name: [getattr(option, name) for _, option in ways] for name in names}
        figures |= {name: [getattr(layers, name) for layers, _ in ways] for name in held}
        figures["techniques"] = [techniques(option) for _, option in ways]
        return cls(
            figures={name: np.array(values, dtype=np.int64) for name, values in figures.items()},
            working_bytes=np.array([option.working_bytes for _, option in ways], dtype=np.int64),
        )

    def added(self, counts: Integers) -> dict[str, Integers]:
        """Return the figures of spans by their counts; working memory is used one layer at a time."""
        summed = {name: counts @ values for name, values in self.figures.items()}
        working = np.where(counts > 0, self.working_bytes, 0).max(axis=1, initial=0)
        return {**summed, "working_bytes": working}


def prefix_counts(problem: PipelineProblem) -> Integers:
    """Return how many layers of each class are among the first 0, 1, 2, ... layers: [layers, class]."""
    steps = np.zeros((problem.num_layers + 1, len(problem.classes)), dtype=np.int64)
    steps[np.arange(problem.num_layers) + 1, list(problem.sequence)] = 1
    return steps.cumsum(axis=0)


def _quickest(layers: LayerClass) -> int:
    options = layers.options
    return min(
        range(len(options)),
        key=lambda i: (options[i].forward_ns + options[i].backward_ns, techniques(options[i])),
    )


def _most_frugal(layers: LayerClass) -> int:
    options = layers.options
    return min(
        range(len(options)),
        key=lambda i: (options[i].saved_bytes, options[i].forward_ns + options[i].backward_ns),
    )


def _compositions(total: int, parts: int) -> Iterator[list[int]]:
    if parts == 1:
        yield [total]
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield [first, *rest]


def _concatenated(first: Spans, second: Spans) -> Spans:
    return Spans(
        **{
            entry.name: np.concatenate((getattr(first, entry.name), getattr(second, entry.name)))
            for entry in fields(Spans)
        }
    )
