"""Measured points that stand on no grid, as bounds on an estimate that keep it monotone."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.dominance import largest_below

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

MANY_POINTS: Final = 30_000
"""Of more points whole blocks are looked at first; of fewer that takes longer than to look at each."""
BLOCK_POINTS: Final = 1024


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Envelope:
    """Points [points, dims] and their seconds, made monotone in the partial order of sizes.

    A larger shape never takes less than a smaller measured one, a smaller one never more than a
    larger measured one; at a measured point both bounds meet.
    """

    sizes: Floats
    seconds: Floats
    _blocks: "_Blocks | None" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Put neighbours together where points are many."""
        is_large = len(self.seconds) > MANY_POINTS
        object.__setattr__(self, "_blocks", _blocks_of(self.sizes, self.seconds) if is_large else None)

    @classmethod
    def of(cls, points: NDArray[np.int64] | Floats, seconds: Floats) -> "Envelope":
        """Return the envelope of points whose seconds may contradict each other a little."""
        sizes = points.astype(np.float64)
        above = largest_below(sizes, seconds)
        below = -largest_below(-sizes, -seconds)
        return cls(sizes=sizes, seconds=np.sqrt(above * below))

    def clip(self, seconds: float, *sizes: float) -> float:
        """Return the estimate moved between the bounds that the points set at ``sizes``."""
        if not len(self.seconds):
            return seconds
        if self._blocks is not None:
            least, most = self._blocks.least(sizes), self._blocks.most(sizes)
        else:
            least = float(self.seconds[_at_most(self.sizes, sizes)].max(initial=0.0))
            most = float(self.seconds[_at_least(self.sizes, sizes)].min(initial=np.inf))
        return min(max(seconds, least), most)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Blocks:
    """Points in blocks of neighbours, with the corners [blocks, dims] and the range of seconds of each."""

    sizes: Floats
    seconds: Floats
    starts: Index
    """Where each block begins among the points, and after the last one their number."""
    lowest: Floats
    highest: Floats
    least_seconds: Floats
    most_seconds: Floats

    def least(self, sizes: tuple[float, ...]) -> float:
        """Return the most seconds of any point that is no larger; 0 where there is none."""
        enclosed = _at_most(self.highest, sizes)
        found = float(self.most_seconds[enclosed].max(initial=0.0))
        reached = _at_most(self.lowest, sizes) & ~enclosed & (self.most_seconds > found)
        for block in np.flatnonzero(reached).tolist():
            own = slice(self.starts[block], self.starts[block + 1])
            found = float(self.seconds[own][_at_most(self.sizes[own], sizes)].max(initial=found))
        return found

    def most(self, sizes: tuple[float, ...]) -> float:
        """Return the least seconds of any point that is no smaller; infinity where there is none."""
        enclosed = _at_least(self.lowest, sizes)
        found = float(self.least_seconds[enclosed].min(initial=np.inf))
        reached = _at_least(self.highest, sizes) & ~enclosed & (self.least_seconds < found)
        for block in np.flatnonzero(reached).tolist():
            own = slice(self.starts[block], self.starts[block + 1])
            found = float(self.seconds[own][_at_least(self.sizes[own], sizes)].min(initial=found))
        return found


def _blocks_of(sizes: Floats, seconds: Floats) -> _Blocks:
    groups = _neighbours(np.log1p(sizes), np.arange(len(seconds)))
    order, starts = np.concatenate(groups), np.cumsum([0, *map(len, groups)])
    sizes, seconds, edges = sizes[order], seconds[order], starts[:-1]
    return _Blocks(
        sizes=sizes,
        seconds=seconds,
        starts=starts,
        lowest=np.minimum.reduceat(sizes, edges, axis=0),
        highest=np.maximum.reduceat(sizes, edges, axis=0),
        least_seconds=np.minimum.reduceat(seconds, edges),
        most_seconds=np.maximum.reduceat(seconds, edges),
    )


def _neighbours(places: Floats, points: Index) -> list[Index]:
    """Return points in blocks of neighbours: halves along their widest axis, of halves, and so on."""
    if len(points) <= BLOCK_POINTS:
        return [points]
    own = places[points]
    widest = int(np.ptp(own, axis=0).argmax())
    order = points[np.argsort(own[:, widest], kind="stable")]
    middle = len(order) // 2
    return [*_neighbours(places, order[:middle]), *_neighbours(places, order[middle:])]


def _at_most(points: Floats, sizes: tuple[float, ...]) -> NDArray[np.bool_]:
    """Return which points are no larger along any axis."""
    columns = points.T
    found: NDArray[np.bool_] = columns[0] <= sizes[0]
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        found &= column <= size
    return found


def _at_least(points: Floats, sizes: tuple[float, ...]) -> NDArray[np.bool_]:
    """Return which points are no smaller along any axis."""
    columns = points.T
    found: NDArray[np.bool_] = columns[0] >= sizes[0]
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        found &= column >= size
    return found
