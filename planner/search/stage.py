"""The undominated ways to run some layers in one chunk: how many of them by each option.

A way dominates another of as many layers when it is nowhere worse: forward and backward time, saved
and working bytes, techniques, bytes on the host where they count. What is dominated is in no optimal plan
that the tie-break prefers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from planner.cost.pipeline import LayerOption, PipelineProblem
from planner.search.orders import forwards_before_first_backward
from planner.search.rows import Integers
from planner.strategy import RecomputeMode

TECHNIQUES: Final = {RecomputeMode.NONE: 0, RecomputeMode.SELECTIVE: 1_000, RecomputeMode.FULL: 1_000_000}
"""How much technique a mode is: any number of selective layers is less than a full one."""
OFFLOADED_ACTIVATIONS: Final = 500_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """``counts[option]`` layers by each option, with what they add to their chunk."""

    counts: tuple[int, ...]
    forward_ns: int
    backward_ns: int
    saved_bytes: int
    working_bytes: int
    techniques: int
    host_saved_bytes: int = 0

    @property
    def num_layers(self) -> int:
        """Layers by all options together."""
        return sum(self.counts)


def techniques(option: LayerOption) -> int:
    """Return how much technique an option is: none, fewest modules, activations on the host, full."""
    offloaded = OFFLOADED_ACTIVATIONS if option.activations else 0
    return TECHNIQUES[option.recompute.mode] + len(option.recompute.modules) + offloaded


def undominated_options(options: Sequence[LayerOption]) -> list[int]:
    """Return the options that no other one dominates, by number; of equal ones the first."""
    return sorted(undominated(_figures(options)))


def undominated(figures: Integers) -> list[int]:
    """Return the rows of which no other row is nowhere larger; of equal rows the first."""
    left = np.lexsort(figures.T[::-1])
    kept: list[int] = []
    while len(left):
        # The first in lexicographic order has nothing smaller left: keep it, drop what it dominates.
        best = left[0]
        kept.append(int(best))
        left = left[np.any(figures[left] < figures[best], axis=1)]
    return kept


@dataclass(frozen=True, slots=True)
class Room:
    """What the only chunk of a stage may keep: ``kept`` times its layers' saved bytes, and working ones."""

    bytes: int
    kept: int
    working_bytes: int
    """Working bytes of the chunk's fixed part, which are needed whatever the layers do."""


class Ways:
    """The undominated ways of one problem's chunks, found when asked for.

    With one chunk per stage the stage's memory is the chunk's own affair: ways that break it are
    left out, and the rest is compared by time and techniques alone.
    """

    def __init__(self, problem: PipelineProblem) -> None:
        self._options = len(problem.options)
        self._used = undominated_options(problem.options)
        self.only: LayerOption | None = problem.options[self._used[0]] if len(self._used) == 1 else None
        """The one option that is left, None when there are several."""
        self._figures = _figures([problem.options[number] for number in self._used])
        self._found: dict[tuple[int, Room | None], tuple[Way, ...]] = {}
        self._room: list[Callable[[int], Room | None]] = [
            _room(problem, chunk) for chunk in range(problem.shape.num_chunks)
        ]

    def of(self, chunk: int, layers: int) -> tuple[Way, ...]:
        """Return the ways to run so many layers in a chunk, the fastest first."""
        key = (layers, self._room[chunk](layers))
        if key not in self._found:
            self._found[key] = self._enumerate(*key)
        return self._found[key]

    def _enumerate(self, layers: int, room: Room | None) -> tuple[Way, ...]:
        counts = compositions(layers, len(self._used))
        figures = counts @ self._figures
        figures[:, _WORKING] = np.where(counts > 0, self._figures[:, _WORKING], 0).max(axis=1)
        compared = figures
        if room is not None:
            working = np.maximum(figures[:, _WORKING], room.working_bytes)
            fits = figures[:, _SAVED] * room.kept + working <= room.bytes
            counts, figures = counts[fits], figures[fits]
            compared = figures[:, (_FORWARD, _BACKWARD, _TECHNIQUES, _HOST_SAVED)]
        ways = [self._way(counts[i].tolist(), figures[i].tolist()) for i in undominated(compared)]
        return tuple(sorted(ways, key=lambda way: (way.forward_ns + way.backward_ns, way.saved_bytes)))

    def _way(self, counts: list[int], figures: list[int]) -> Way:
        by_number = dict(zip(self._used, counts, strict=True))
        return Way(
            counts=tuple(by_number.get(number, 0) for number in range(self._options)),
            forward_ns=figures[_FORWARD],
            backward_ns=figures[_BACKWARD],
            saved_bytes=figures[_SAVED],
            working_bytes=figures[_WORKING],
            techniques=figures[_TECHNIQUES],
            host_saved_bytes=figures[_HOST_SAVED],
        )


def _room(problem: PipelineProblem, chunk: int) -> Callable[[int], Room | None]:
    """Return the room of a chunk's layers by their number; None where the stage has more chunks."""
    shape = problem.shape
    if shape.virtual_stages > 1:
        return lambda _: None
    kept = forwards_before_first_backward(shape, chunk)
    part = problem.fixed_part(chunk)
    free = problem.limit_bytes - problem.base_bytes - part.static_bytes - kept * part.saved_bytes
    return lambda layers: Room(free - layers * problem.static_bytes, kept, part.working_bytes)


_FORWARD, _BACKWARD, _SAVED, _WORKING, _TECHNIQUES, _HOST_SAVED = range(6)


def _figures(options: Sequence[LayerOption]) -> Integers:
    """Return the options' figures, one row each."""
    rows = [
        (
            option.forward_ns,
            option.backward_ns,
            option.saved_bytes,
            option.working_bytes,
            techniques(option),
            option.host_saved_bytes,
        )
        for option in options
    ]
    return np.array(rows, dtype=np.int64)


@lru_cache(maxsize=256)
def compositions(total: int, parts: int) -> Integers:
    """Return every way to write a total as an ordered sum of parts from 0 up, one row each."""
    if parts == 1:
        return np.array([[total]], dtype=np.int64)
    blocks = []
    for first in range(total, -1, -1):
        rest = compositions(total - first, parts - 1)
        blocks.append(np.hstack((np.full((len(rest), 1), first, dtype=np.int64), rest)))
    return np.concatenate(blocks)
