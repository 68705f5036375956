"""What one stage of several chunks can hold: a point for each number of layers and each way to run them.

A stage's layers are spread over its chunks evenly, chunks that carry an end of the model as much
lighter as that end weighs. Where layers may be recomputed one by one, those of the first chunks are
recomputed first, because they keep most micro-batches: one canonical order. What does not fit the
stage's memory is no point.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.pipeline import LayerOption, PipelineProblem
from planner.search.memory_rows import MemoryRows, memory_rows
from planner.search.rows import Integers, fixed_parts
from planner.search.stage import compositions, techniques, undominated, undominated_options


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
        self._figures = _figures(problem.options)
        self._used = undominated_options(problem.options)
        if problem.shape.schedule.splits_backward:
            self._used = sorted(undominated(self._figures))
        # The most frugal option first: layers are moved to quicker ones as far as memory allows.
        self._used.sort(key=lambda number: (problem.options[number].saved_bytes, -number))
        self._memory: dict[int, MemoryRows] = {}
        self._found: dict[tuple[int, int], tuple[StagePoint, ...]] = {}
        self._spreads: list[dict[int, tuple[int, ...]]] = [{} for _ in range(problem.shape.num_stages)]

    def of(self, stage: int, num_layers: int) -> tuple[StagePoint, ...]:
        """Return the points of a stage that holds so many layers."""
        key = (stage, num_layers)
        if key not in self._found:
            counts = self._counts(self.spread(stage, num_layers))
            counts = counts[self._fitting(stage, counts)]
            kept = counts[sorted(undominated(self._compared(counts)))] if len(counts) else counts
            self._found[key] = tuple(map(self._point, kept.tolist()))
        return self._found[key]

    def spread(self, stage: int, num_layers: int) -> tuple[int, ...]:
        """Return how many layers each chunk of a stage holds: later chunks take what is left over."""
        if num_layers not in self._spreads[stage]:
            self._spreads[stage] = {sum(layers): layers for layers in self._dealt(stage, num_layers)}
        return self._spreads[stage][num_layers]

    def _dealt(self, stage: int, most: int) -> Iterator[tuple[int, ...]]:
        """Yield the spreads of the fewest layers up to the most, each with one more than that before it."""
        own = list(self._own(stage))
        weights = [self._weight(chunk) for chunk in own]
        layers = [self._problem.minimum_layers(chunk) for chunk in own]
        yield tuple(layers)
        for _ in range(most - sum(layers)):
            turn = min(range(len(own)), key=lambda turn: (layers[turn] + weights[turn], -turn))
            layers[turn] += 1
            yield tuple(layers)

    def _own(self, stage: int) -> range:
        return self._problem.shape.chunks_of(stage)

    def _weight(self, chunk: int) -> int:
        """Return how many layers the chunk's fixed part weighs, rounded."""
        part, option = self._parts[chunk], self._problem.options[self._used[-1]]
        each = option.forward_ns + option.backward_ns
        return round((part.forward_ns + part.backward_ns) / each) if each else 0

    def _counts(self, layers: Sequence[int]) -> Integers:
        """Return how many layers of each chunk run by each option, in every order: [order, turn, option].

        A stage's first layers run by the first used options, the most frugal ones.
        """
        runs = compositions(sum(layers), len(self._used))[::-1]
        until = runs.cumsum(axis=1)[:, None, :]
        ends = np.cumsum(np.array(layers, dtype=np.int64))[None, :, None]
        starts = ends - np.array(layers, dtype=np.int64)[None, :, None]
        inside = np.minimum(until, ends) - np.maximum(until - runs[:, None, :], starts)
        counts = np.zeros((len(runs), len(layers), len(self._problem.options)), dtype=np.int64)
        counts[:, :, self._used] = np.maximum(inside, 0)
        return counts

    def _compared(self, counts: Integers) -> Integers:
        """Return what makes a point better than another: passes, hosts and techniques: [order, figure]."""
        passes = counts @ self._figures[:, (_FORWARD, _INPUTS, _WEIGHT, _HOST_SAVED)]
        added = counts.sum(axis=1) @ self._figures[:, _TECHNIQUES]
        return np.column_stack((passes.reshape(len(counts), -1), added))

    def _fitting(self, stage: int, counts: Integers) -> NDArray[np.bool_]:
        """Return which orders fit the stage's memory."""
        rows, figures = self._rows_of(stage), self._figures
        working = np.where(counts > 0, figures[:, _WORKING], 0).max(axis=2, initial=0)
        busy = np.maximum(working, rows.fixed_working)[:, rows.working_turn]
        held = rows.fixed_bytes + (counts @ figures[:, _SAVED]) @ rows.kept.T + busy
        if self._problem.shape.schedule.splits_backward:
            held = held + (counts @ figures[:, _HELD]) @ rows.waiting.T
        static = int(counts[0].sum()) * self._problem.static_bytes
        fits: NDArray[np.bool_] = held.max(axis=1) + static <= self._problem.limit_bytes
        return fits

    def _rows_of(self, stage: int) -> MemoryRows:
        if stage not in self._memory:
            self._memory[stage] = memory_rows(self._problem, stage)
        return self._memory[stage]

    def _point(self, counts: list[list[int]]) -> StagePoint:
        each = np.array(counts, dtype=np.int64).sum(axis=0)
        return StagePoint(
            counts=tuple(map(tuple, counts)), techniques=int(each @ self._figures[:, _TECHNIQUES])
        )


_FORWARD, _INPUTS, _WEIGHT, _SAVED, _HELD, _WORKING, _TECHNIQUES, _HOST_SAVED = range(8)


def _figures(options: Sequence[LayerOption]) -> Integers:
    """Return the figures of the options, one row each."""
    rows = [
        (
            option.forward_ns,
            option.inputs_ns,
            option.weight_ns,
            option.saved_bytes,
            option.held_bytes,
            option.working_bytes,
            techniques(option),
            option.host_saved_bytes,
        )
        for option in options
    ]
    return np.array(rows, dtype=np.int64)
