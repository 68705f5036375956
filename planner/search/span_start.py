"""A good split of a mixed chain over several chunks per stage, found by hand to start from.

Layers are dealt to the stage that has least to do, then moved from chunk to chunk while known paths shrink.
What it finds is only ever an upper bound; the program decides.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.memory_rows import memory_rows
from planner.search.rows import Integers, fixed_parts
from planner.search.spans import PathTable, SpanFinder, Spans

GIVERS: Final = 6
"""Chunks that are tried as the one to give a layer: those that shorten the longest path most."""


class SplitByHand:
    """Numbers of layers per chunk, every layer run the quickest way."""

    def __init__(self, problem: PipelineProblem, finder: SpanFinder, spans: Sequence[Spans]) -> None:
        """Take the spans that each chunk may hold."""
        self._problem, self._finder = problem, finder
        sizes = [own.end - own.start for own in spans]
        self._low = np.array([own.min() for own in sizes], dtype=np.int64)
        self._high = np.array([own.max() for own in sizes], dtype=np.int64)
        self._stages = np.array([problem.shape.stage_of(chunk) for chunk in range(problem.shape.num_chunks)])
        self._memory = [memory_rows(problem, stage) for stage in range(problem.shape.num_stages)]

    def start(self) -> Integers | None:
        """Return layers dealt out one by one, None when they are more than chunks can hold.

        Each goes to the stage with least to do that has room for one more of the largest, and there to the
        emptiest chunk.
        """
        problem, sizes = self._problem, self._low.copy()
        each = self._passes_ns() / problem.num_layers
        fixed = [part.forward_ns + part.backward_ns for part in fixed_parts(problem)]
        for _ in range(problem.num_layers - int(sizes.sum())):
            has_room = self._room_bytes(sizes) >= max(layers.static_bytes for layers in problem.classes)
            work = np.bincount(self._stages, weights=sizes * each + np.array(fixed))
            can_take = np.flatnonzero((sizes < self._high) & has_room[self._stages])
            if not len(can_take):
                can_take = np.flatnonzero(sizes < self._high)
            if not len(can_take):
                return None
            order = np.lexsort((-can_take, sizes[can_take], work[self._stages[can_take]]))
            sizes[can_take[order[0]]] += 1
        return sizes if sizes.sum() == problem.num_layers else None

    def moved(self, sizes: Integers, paths: PathTable) -> Integers | None:
        """Return the split with one layer in another chunk that is best, None when none is better.

        A split is the better the less it exceeds the memory, then the shorter its longest known path.
        """
        tried = self._neighbours(sizes, paths)
        if not len(tried):
            return None
        values = self._values(tried, paths)
        best = int(np.lexsort(values[::-1])[0])
        is_better = tuple(int(figure[best]) for figure in values) < self.value(sizes, paths)
        return tried[best] if is_better else None

    def value(self, sizes: Integers, paths: PathTable) -> tuple[int, ...]:
        """Return bytes beyond memory, the longest path and the sum of paths: less of them is better."""
        return tuple(int(figure[0]) for figure in self._values(sizes[None], paths))

    def _values(self, sizes: Integers, paths: PathTable) -> tuple[Integers, Integers, Integers]:
        spans = self.spans(sizes)
        lengths = _lengths_ns(spans, paths, sizes)
        return self._over_bytes(spans).sum(axis=1), lengths.max(axis=1), lengths.sum(axis=1)

    def _neighbours(self, sizes: Integers, paths: PathTable) -> Integers:
        """Return the splits with one layer moved from a chunk that weighs most on what is wrong."""
        spans = self.spans(sizes[None])
        longest = int(_lengths_ns(spans, paths, sizes[None])[0].argmax())
        on_path = paths.forward[longest] + paths.backward[longest]
        too_full = self._over_bytes(spans)[0, self._stages] > 0
        can_give = np.flatnonzero(sizes > self._low)
        order = np.lexsort((-on_path[can_give], ~too_full[can_give]))
        takers = np.flatnonzero(sizes < self._high)
        moves = np.array(
            [
                (giver, taker)
                for giver in can_give[order][:GIVERS].tolist()
                for taker in takers.tolist()
                if giver != taker
            ],
            dtype=np.int64,
        ).reshape(-1, 2)
        tried = np.tile(sizes, (len(moves), 1))
        tried[np.arange(len(moves)), moves[:, 0]] -= 1
        tried[np.arange(len(moves)), moves[:, 1]] += 1
        return tried

    def spans(self, sizes: Integers) -> Spans:
        """Return the spans of some splits, one after the other: [split x chunk]."""
        ends = sizes.cumsum(axis=1)
        return self._finder.quickest((ends - sizes).ravel(), ends.ravel())

    def _passes_ns(self) -> int:
        whole = self._finder.quickest(np.array([0]), np.array([self._problem.num_layers]))
        return int(whole.forward_ns[0] + whole.backward_ns[0])

    def _room_bytes(self, sizes: Integers) -> Integers:
        room: Integers = -self._beyond_bytes(self.spans(sizes[None]))[0]
        return room

    def _over_bytes(self, spans: Spans) -> Integers:
        """Return by how much each stage exceeds its memory: [split, stage]."""
        return np.maximum(self._beyond_bytes(spans), 0)

    def _beyond_bytes(self, spans: Spans) -> Integers:
        """Return how far each stage is above its memory, below zero what it has left: [split, stage]."""
        shape = self._problem.shape
        saved, held, static, working = (
            figure.reshape(-1, shape.num_chunks)
            for figure in (spans.saved_bytes, spans.held_bytes, spans.static_bytes, spans.working_bytes)
        )
        found = []
        for stage, rows in enumerate(self._memory):
            own = shape.own(stage)
            busy = np.maximum(working[:, own], rows.fixed_working)[:, rows.working_turn]
            kept = saved[:, own] @ rows.kept.T + held[:, own] @ rows.waiting.T + busy + rows.fixed_bytes
            found.append(kept.max(axis=1) + static[:, own].sum(axis=1) - self._problem.limit_bytes)
        return np.stack(found, axis=1)


def _lengths_ns(spans: Spans, paths: PathTable, sizes: Integers) -> Integers:
    """Return the length of every known path under some splits: [split, path]."""
    lengths = paths.constant_ns - (sizes == 0) @ paths.relief_ns.T
    for durations, passes in (
        (spans.forward_ns, paths.forward),
        (spans.backward_ns, paths.backward),
        (spans.gather_ns, paths.gather),
        (spans.reduce_ns, paths.reduce),
        (spans.optimizer_ns, paths.optimizer),
        (spans.weight_ns, paths.weight),
    ):
        lengths = lengths + durations.reshape(sizes.shape) @ passes.T
    return np.asarray(lengths)
