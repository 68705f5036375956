"""What one stage of several chunks can hold: a point for each number of layers and each way to run them.

A stage's layers are spread over its chunks evenly, chunks that carry an end of the model as much
lighter as that end weighs. Where layers may be recomputed one by one, those of the first chunks are
recomputed first, because they keep most micro-batches: one canonical order. What does not fit the
stage's memory is no point.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.pipeline import LayerOption, PipelineProblem
from planner.search.capacity import most_layers
from planner.search.memory_rows import MemoryRows, memory_rows
from planner.search.rows import fixed_parts
from planner.search.stage import techniques, undominated_options


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePoint:
    """``counts[turn][option]`` layers of each chunk of a stage."""

    counts: tuple[tuple[int, ...], ...]
    techniques: int

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of each chunk."""
        return tuple(map(sum, self.counts))

    @property
    def num_layers(self) -> int:
        """Layers of the whole stage."""
        return sum(self.layers)


class StagePoints:
    """The points of every stage of one problem, found when asked for."""

    def __init__(self, problem: PipelineProblem) -> None:
        self._problem = problem
        self._parts = fixed_parts(problem)
        self._capacity = most_layers(problem)
        self._used = undominated_options(problem.options)
        # The most frugal option first: layers are moved to quicker ones as far as memory allows.
        self._used.sort(key=lambda number: (problem.options[number].saved_bytes, -number))
        self._memory: list[MemoryRows] = [
            memory_rows(problem, stage) for stage in range(problem.shape.num_stages)
        ]
        self._found: dict[tuple[int, int], tuple[StagePoint, ...]] = {}

    def fewest(self, stage: int) -> int:
        """Return the fewest layers that a stage may hold."""
        return sum(self._problem.minimum_layers(chunk) for chunk in self._own(stage))

    def most(self, stage: int) -> int:
        """Return the most layers that fit a stage's memory; below ``fewest`` where not even those do."""
        low, high = self.fewest(stage) - 1, self._capacity[stage] if self._capacity else -1
        if low < high and self.of(stage, high):
            return high
        while low < high:
            middle = (low + high + 1) // 2
            if self.of(stage, middle):
                low = middle
            else:
                high = middle - 1
        return low

    def of(self, stage: int, num_layers: int) -> tuple[StagePoint, ...]:
        """Return the points of a stage that holds so many layers."""
        key = (stage, num_layers)
        if key not in self._found:
            layers = self.spread(stage, num_layers)
            points = [self._point(layers, runs) for runs in self._orders(num_layers)]
            fitting = [point for point in points if self._fits(stage, point)]
            self._found[key] = tuple(_undominated(fitting, self._problem.options))
        return self._found[key]

    def spread(self, stage: int, num_layers: int) -> tuple[int, ...]:
        """Return how many layers each chunk of a stage holds: later chunks take what is left over."""
        own = list(self._own(stage))
        weights = [self._weight(chunk) for chunk in own]
        layers = [self._problem.minimum_layers(chunk) for chunk in own]
        for _ in range(num_layers - sum(layers)):
            turn = min(range(len(own)), key=lambda turn: (layers[turn] + weights[turn], -turn))
            layers[turn] += 1
        return tuple(layers)

    def _own(self, stage: int) -> range:
        return range(stage, self._problem.shape.num_chunks, self._problem.shape.num_stages)

    def _weight(self, chunk: int) -> int:
        """Return how many layers the chunk's fixed part weighs, rounded."""
        part, option = self._parts[chunk], self._problem.options[self._used[-1]]
        each = option.forward_ns + option.backward_ns
        return round((part.forward_ns + part.backward_ns) / each) if each else 0

    def _orders(self, num_layers: int) -> Iterator[tuple[int, ...]]:
        """Yield how many layers run by each used option, most frugal first."""
        if len(self._used) == 1:
            yield (num_layers,)
            return
        yield from _compositions(num_layers, len(self._used))

    def _point(self, layers: Sequence[int], runs: Sequence[int]) -> StagePoint:
        """Return the point whose first layers run by the first options."""
        left = list(runs)
        counts = []
        for size in layers:
            entry = [0] * len(self._problem.options)
            for place, option in enumerate(self._used):
                taken = min(size - sum(entry), left[place])
                entry[option] = taken
                left[place] -= taken
            counts.append(tuple(entry))
        weights = [techniques(option.recompute) for option in self._problem.options]
        return StagePoint(
            counts=tuple(counts),
            techniques=sum(
                count * weight for entry in counts for count, weight in zip(entry, weights, strict=True)
            ),
        )

    def _fits(self, stage: int, point: StagePoint) -> bool:
        options = self._problem.options
        saved = [
            sum(c * o.saved_bytes for c, o in zip(entry, options, strict=True)) for entry in point.counts
        ]
        working = [
            max((o.working_bytes for c, o in zip(entry, options, strict=True) if c), default=0)
            for entry in point.counts
        ]
        peak = self._memory[stage].peak_bytes(
            np.array(saved, dtype=np.int64),
            np.array(working, dtype=np.int64),
            point.num_layers * self._problem.static_bytes,
        )
        return peak <= self._problem.limit_bytes


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def _undominated(points: Sequence[StagePoint], options: Sequence[LayerOption]) -> Iterator[StagePoint]:
    """Yield the points that no other one beats in every chunk's passes and in techniques."""
    figures = [
        (
            *(sum(c * o.forward_ns for c, o in zip(entry, options, strict=True)) for entry in point.counts),
            *(sum(c * o.backward_ns for c, o in zip(entry, options, strict=True)) for entry in point.counts),
            point.techniques,
        )
        for point in points
    ]
    for number, (point, mine) in enumerate(zip(points, figures, strict=True)):
        beaten = any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and (other != mine or rival < number)
            for rival, other in enumerate(figures)
            if rival != number
        )
        if not beaten:
            yield point
