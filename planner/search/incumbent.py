"""A good plan found by hand, to start from: layers spread evenly, then shifted while known paths shrink.

What it finds is only ever an upper bound; the master program decides.
"""

from collections.abc import Sequence

import numpy as np

from planner.cost.pipeline import Assignment, PipelineProblem
from planner.search.box import Box
from planner.search.memory_rows import MemoryRows, memory_rows
from planner.search.rows import Integers, PathRows
from planner.search.stage import Way, Ways

GIVERS = 6
"""Chunks that are tried as the one to give a layer: those that shorten the longest path most."""
PLACES = 12
"""Shifts that are checked for memory before a step is given up."""


class Incumbent:
    """A complete plan under construction: layers and way of every chunk."""

    def __init__(self, problem: PipelineProblem, ways: Ways, box: Box) -> None:
        self._problem, self._ways, self._box = problem, ways, box
        self._stages: list[MemoryRows] | None = None

    def start(self) -> list[Way] | None:
        """Return an even plan that fits the memory, None when none comes to hand."""
        layers = _even(self._problem, self._box)
        if layers is None:
            return None
        found = [self._ways.of(chunk, count) for chunk, count in enumerate(layers)]
        if not all(found):
            return None
        chosen = [options[0] for options in found]
        if self._problem.shape.virtual_stages > 1:
            for stage in range(self._problem.shape.num_stages):
                if not self._relieve(stage, chosen, found):
                    return None
        return chosen

    def improve(self, chosen: list[Way], rows: PathRows) -> list[Way]:
        """Shift layers from chunk to chunk as long as the longest of the known paths gets shorter."""
        for _ in range(4 * self._problem.num_layers):
            better = self._shift(chosen, rows)
            if better is None:
                return chosen
            chosen = better
        return chosen

    def _relieve(self, stage: int, chosen: list[Way], found: Sequence[Sequence[Way]]) -> bool:
        """Make a stage's chunks more frugal, cheapest relief first, until the stage fits."""
        p = self._problem.shape.num_stages
        own = range(stage, len(chosen), p)
        while (over := self._peak(stage, chosen)) > self._problem.limit_bytes:
            trials = []
            for chunk in own:
                for way in found[chunk]:
                    peak = self._peak(stage, [*chosen[:chunk], way, *chosen[chunk + 1 :]])
                    if peak < over:
                        lost = way.forward_ns + way.backward_ns
                        lost -= chosen[chunk].forward_ns + chosen[chunk].backward_ns
                        trials.append((max(lost, 0) / (over - peak), chunk, way.techniques, way))
            if not trials:
                return False
            _, chunk, _, way = min(trials, key=lambda trial: trial[:3])
            chosen[chunk] = way
        return True

    def _peak(self, stage: int, chosen: Sequence[Way]) -> int:
        if self._stages is None:
            self._stages = [memory_rows(self._problem, i) for i in range(self._problem.shape.num_stages)]
        own = chosen[stage :: self._problem.shape.num_stages]
        return self._stages[stage].peak_bytes(
            np.array([way.saved_bytes for way in own], dtype=np.int64),
            np.array([way.working_bytes for way in own], dtype=np.int64),
            sum(way.num_layers for way in own) * self._problem.static_bytes,
        )

    def _shift(self, chosen: list[Way], rows: PathRows) -> list[Way] | None:
        """Return the plan with one layer moved that shortens the longest path most, None when none does."""
        lengths = path_lengths_ns(chosen, rows)
        fewer, more = self._neighbours(chosen, -1), self._neighbours(chosen, +1)
        given, taken = _changes(chosen, fewer, rows), _changes(chosen, more, rows)
        longest = int(lengths.argmax())
        can_give = [chunk for chunk, way in enumerate(fewer) if way is not None]
        can_take = [chunk for chunk, way in enumerate(more) if way is not None]
        givers = sorted(can_give, key=lambda chunk: given[longest, chunk])[:GIVERS]
        if not givers or not can_take:
            return None
        after = lengths[:, None, None] + given[:, givers, None] + taken[:, None, can_take]
        worst, total = after.max(axis=0), after.sum(axis=0)
        before = (int(lengths.max()), int(lengths.sum()))
        for place in np.lexsort((total.ravel(), worst.ravel()))[:PLACES].tolist():
            giver, taker = givers[place // len(can_take)], can_take[place % len(can_take)]
            if (int(worst.flat[place]), int(total.flat[place])) >= before:
                return None
            if giver == taker:
                continue
            shifted = list(chosen)
            shifted[giver], shifted[taker] = _present(fewer[giver]), _present(more[taker])
            if self._fits(shifted, {giver, taker}):
                return shifted
        return None

    def _neighbours(self, chosen: Sequence[Way], step: int) -> list[Way | None]:
        """Return each chunk's fastest way with one layer more or less, None where its range ends."""
        found: list[Way | None] = []
        for chunk, way in enumerate(chosen):
            layers = way.num_layers + step
            if not self._box.low[chunk] <= layers <= self._box.high[chunk]:
                found.append(None)
                continue
            ways = self._ways.of(chunk, layers)
            found.append(ways[0] if ways else None)
        return found

    def _fits(self, chosen: Sequence[Way], changed: set[int]) -> bool:
        if self._problem.shape.virtual_stages == 1:
            return True
        stages = {chunk % self._problem.shape.num_stages for chunk in changed}
        return all(self._peak(stage, chosen) <= self._problem.limit_bytes for stage in stages)


def path_lengths_ns(chosen: Sequence[Way], rows: PathRows) -> Integers:
    """Return the length of every known path under a plan."""
    forward, backward, layers = _figures(chosen)
    return rows.lengths_ns(forward, backward, layers)


def assignment_of(chosen: Sequence[Way]) -> Assignment:
    """Return a plan as counts of layers."""
    return tuple(way.counts for way in chosen)


def _even(problem: PipelineProblem, box: Box) -> list[int] | None:
    """Return layers spread as evenly as the ranges allow, fuller chunks first."""
    layers: list[int] = box.low.tolist()
    high: list[int] = box.high.tolist()
    p = problem.shape.num_stages
    for _ in range(problem.num_layers - sum(layers)):
        open_chunks = [chunk for chunk in range(len(layers)) if layers[chunk] < high[chunk]]
        if not open_chunks:
            return None
        # The least full chunk; among equals one in the middle, whose stage carries no end.
        chunk = min(open_chunks, key=lambda c: (layers[c], c in {0, len(layers) - 1}, c // p, c))
        layers[chunk] += 1
    return layers


def _figures(chosen: Sequence[Way]) -> tuple[Integers, Integers, Integers]:
    rows = [(way.forward_ns, way.backward_ns, way.num_layers) for way in chosen]
    forward, backward, layers = np.array(rows, dtype=np.int64).T
    return forward, backward, layers


def _changes(chosen: Sequence[Way], others: Sequence[Way | None], rows: PathRows) -> Integers:
    """Return by how much each path changes when a chunk takes another way, [row, chunk]."""
    old = _figures(chosen)
    new = _figures([other or way for way, other in zip(chosen, others, strict=True)])
    forward, backward, layers = (after - before for after, before in zip(new, old, strict=True))
    return rows.forward * forward + rows.backward * backward + rows.layer_ns * layers


def _present(way: Way | None) -> Way:
    assert way is not None
    return way
