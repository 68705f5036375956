"""A duration over a product grid of sizes: monotone in every size, straight lines between logarithms."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import exp, log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Surface:
    """log seconds at the nodes of a grid over log sizes, multilinear between them.

    Below the grid the value of its edge holds (a kernel has a least duration); above it a duration
    grows with the power of the size that ``growth`` says, 1 for a loop that runs more often.
    """

    log_axes: tuple[Floats, ...]
    log_seconds: Floats
    growth: tuple[float, ...] = (1.0, 1.0, 1.0)
    _axes: tuple[list[float], ...] = field(init=False, repr=False)
    _nodes: list[float] = field(init=False, repr=False)
    _strides: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep plain lists: one look-up takes microseconds, far less than an array operation."""
        shape = self.log_seconds.shape
        strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        object.__setattr__(self, "_axes", tuple(axis.tolist() for axis in self.log_axes))
        object.__setattr__(self, "_nodes", self.log_seconds.ravel().tolist())
        object.__setattr__(self, "_strides", strides)

    def __call__(self, *sizes: float) -> float:
        """Return the seconds at one point."""
        exponent = 0.0
        corners = []
        for axis, stride, power, size in zip(self._axes, self._strides, self.growth, sizes, strict=False):
            position = log(size)
            exponent += power * max(0.0, position - axis[-1])
            position = min(max(position, axis[0]), axis[-1])
            cell = min(bisect_right(axis, position) - 1, len(axis) - 2)
            share = (position - axis[cell]) / (axis[cell + 1] - axis[cell])
            corners.append(((cell * stride, 1.0 - share), ((cell + 1) * stride, share)))
        for corner in product(*corners):
            weight, node = 1.0, 0
            for offset, share in corner:
                weight *= share
                node += offset
            exponent += weight * self._nodes[node]
        return exp(exponent)


def monotone(values: Floats) -> Floats:
    """Return the values made non-decreasing along every axis: the mean of the two nearest bounds.

    The running maximum from below is the least monotone function above the values, the running
    minimum from above the greatest one below them; monotone values are their own mean.
    """
    return (running_maximum(values) + running_minimum(values)) / 2.0


def running_maximum(values: Floats) -> Floats:
    """Return the least function above the values that is monotone along every axis."""
    for axis in range(values.ndim):
        values = np.maximum.accumulate(values, axis=axis)
    return values


def running_minimum(values: Floats, *, axes: Sequence[int] | None = None) -> Floats:
    """Return the greatest function below the values that is monotone along some axes, or along all."""
    for axis in range(values.ndim) if axes is None else axes:
        values = np.flip(np.minimum.accumulate(np.flip(values, axis=axis), axis=axis), axis=axis)
    return values


def fill_along(values: Floats, axes: Sequence[Floats]) -> Floats:
    """Return the grid with its gaps (NaN) filled: the mean of straight lines along each axis.

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


def left_out(values: Floats, axes: Sequence[Floats]) -> Floats:
    """Return what each inner node would be without its own value: the mean of lines between neighbours.

    NaN where no line reaches: at the corners, and where neighbours are missing.
    """
    lines = np.stack([_between(values, axis, positions) for axis, positions in enumerate(axes)])
    reached = ~np.isnan(lines)
    mean = np.where(reached, lines, 0.0).sum(axis=0) / np.maximum(reached.sum(axis=0), 1)
    mean[~reached.any(axis=0)] = np.nan
    return np.asarray(mean, dtype=np.float64)


def _lines(values: Floats, axis: int, positions: Floats) -> Floats:
    """Return the gaps of every row along one axis, filled by straight lines; NaN elsewhere."""
    rows = np.moveaxis(values, axis, -1)
    result = np.full(rows.shape, np.nan)
    holes = np.isnan(rows)
    partly = holes.any(axis=-1) & ~holes.all(axis=-1)
    for index in zip(*np.nonzero(partly), strict=True):
        known = ~holes[index]
        result[index] = np.interp(positions, positions[known], rows[index][known])
    return np.moveaxis(result, -1, axis)


def _between(values: Floats, axis: int, positions: Floats) -> Floats:
    rows = np.moveaxis(values, axis, -1)
    result = np.full(rows.shape, np.nan)
    if len(positions) > 2:  # noqa: PLR2004 - an inner node has two neighbours
        share = (positions[1:-1] - positions[:-2]) / (positions[2:] - positions[:-2])
        result[..., 1:-1] = rows[..., :-2] * (1.0 - share) + rows[..., 2:] * share
    return np.moveaxis(result, -1, axis)
