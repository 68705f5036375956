"""A duration over a product grid of sizes: monotone in every size, straight lines between logarithms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Surface:
    """log seconds at the nodes of a grid over log sizes; between nodes multilinear, beyond it proportional.

    Below the grid the value of its edge holds (a kernel has a least duration); above it a duration
    grows in proportion to the size, as a loop that runs more often.
    """

    log_axes: tuple[Floats, ...]
    log_seconds: Floats

    def __call__(self, *sizes: float) -> float:
        """Return the seconds at one point."""
        beyond = 0.0
        low, weight = [], []
        for axis, size in zip(self.log_axes, sizes, strict=True):
            position = float(np.log(size))
            last = float(axis[-1])
            beyond += max(0.0, position - last)
            position = min(max(position, float(axis[0])), last)
            cell = min(max(int(axis.searchsorted(position, side="right")) - 1, 0), len(axis) - 2)
            low.append(cell)
            weight.append((position - float(axis[cell])) / float(axis[cell + 1] - axis[cell]))
        corner = self.log_seconds[tuple(slice(cell, cell + 2) for cell in low)]
        for share in weight:
            corner = corner[0] * (1.0 - share) + corner[1] * share
        return float(np.exp(float(corner) + beyond))


def monotone(values: Floats) -> Floats:
    """Return the values made non-decreasing along every axis: the mean of the two nearest bounds.

    The running maximum from below is the least monotone function above the values, the running
    minimum from above the greatest one below them; monotone values are their own mean.
    """
    above, below = values, values
    for axis in range(values.ndim):
        above = np.maximum.accumulate(above, axis=axis)
        below = np.flip(np.minimum.accumulate(np.flip(below, axis=axis), axis=axis), axis=axis)
    return (above + below) / 2.0


def fill_along(values: Floats, axes: Sequence[Floats]) -> Floats:
    """Return the grid with its gaps (NaN) filled from neighbours: the mean of straight lines along each axis.

    ``values`` are deviations from a model, so beyond the outermost neighbour the nearest one holds.
    Gaps that no line reaches are filled from what other gaps got; an empty grid becomes zero.
    """
    filled = values
    while np.isnan(filled).any():
        lines = np.stack([_lines(filled, axis, positions) for axis, positions in enumerate(axes)])
        reached = ~np.isnan(lines)
        if not reached.any():
            return np.nan_to_num(filled)
        total = np.where(reached, lines, 0.0).sum(axis=0)
        mean = total / np.maximum(reached.sum(axis=0), 1)
        mean[~reached.any(axis=0)] = np.nan
        filled = np.where(np.isnan(filled), mean, filled)
    return filled


def _lines(values: Floats, axis: int, positions: Floats) -> Floats:
    rows = np.moveaxis(values, axis, -1)
    result = np.full(rows.shape, np.nan)
    for index in np.ndindex(rows.shape[:-1]):
        row = rows[index]
        known = ~np.isnan(row)
        if known.any() and not known.all():
            result[index] = np.interp(positions, positions[known], row[known])
    return np.moveaxis(result, -1, axis)
