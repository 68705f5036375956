"""Measured points that stand on no grid, as bounds on an estimate that keep it monotone."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_COMPARED: Final = 20_000_000
"""Sizes compared at once: some hundred megabytes of intermediate results."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Envelope:
    """Points [points, dims] and their seconds, made monotone in the partial order of sizes.

    A larger shape never takes less than a smaller measured one, a smaller one never more than a
    larger measured one; at a measured point both bounds meet.
    """

    sizes: Floats
    seconds: Floats

    @classmethod
    def of(cls, points: NDArray[np.int64] | Floats, seconds: Floats) -> "Envelope":
        """Return the envelope of points whose seconds may contradict each other a little."""
        sizes = points.astype(np.float64)
        above, below = np.empty(len(sizes)), np.empty(len(sizes))
        # Block by block: all pairs of many points at once would not fit the memory.
        block = max(MOST_COMPARED // max(sizes.size, 1), 1)
        for start in range(0, len(sizes), block):
            own = slice(start, start + block)
            not_larger = (sizes[own, None, :] >= sizes[None, :, :]).all(axis=2)
            above[own] = np.where(not_larger, seconds[None, :], -np.inf).max(axis=1, initial=-np.inf)
            not_smaller = (sizes[own, None, :] <= sizes[None, :, :]).all(axis=2)
            below[own] = np.where(not_smaller, seconds[None, :], np.inf).min(axis=1, initial=np.inf)
        return cls(sizes=sizes, seconds=np.sqrt(above * below))

    def clip(self, seconds: float, *sizes: float) -> float:
        """Return the estimate moved between the bounds that the points set at ``sizes``."""
        if not len(self.seconds):
            return seconds
        columns = self.sizes.T
        not_larger, not_smaller = columns[0] <= sizes[0], columns[0] >= sizes[0]
        for column, size in zip(columns[1:], sizes[1:], strict=True):
            not_larger &= column <= size
            not_smaller &= column >= size
        least = self.seconds[not_larger].max(initial=0.0)
        most = self.seconds[not_smaller].min(initial=np.inf)
        return float(min(max(seconds, least), most))
