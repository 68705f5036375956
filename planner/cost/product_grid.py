"""A surface of product times through measured grids, wider than the grids by a roofline."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.product_rows import Stack, grid_of
from planner.cost.surface import Surface, fill_along, left_out, monotone
from planner.units import BytesPerSecond, FlopsPerSecond, Seconds

Floats = NDArray[np.float64]

LAUNCH_SECONDS: Final = 3e-6
"""The shortest kernels of the published tables take 3 to 5 us on the device."""
LOWER_NODES: Final = (1.0, 16.0, 64.0, 128.0, 256.0)
"""Sizes added below a measured ladder, so that narrow products follow the roofline rather than an edge."""
UPPER_FACTORS: Final = (2.0, 8.0)
"""Sizes added above a measured ladder; beyond them time is proportional to each size."""
STANDS: Final = 0.05
"""A row counts as measured where the surface keeps to it within this much (of the logarithm)."""
OUTLIER: Final = 1.25
"""Two stacks of one device differ by 4 to 8 % in the median, nine in ten by less than this; a third of the
large shapes that one stack timed on GB200 are 1.3 to 2 times as slow as the other's."""
NORMAL_MEDIAN: Final = 1.4826
"""Standard deviation of a normal error over its median absolute value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """The least a product can take: its FLOP at ``flops_per_second`` or its bytes at the memory's rate."""

    flops_per_second: FlopsPerSecond
    bytes_per_second: BytesPerSecond
    element_bytes: float
    launch_seconds: Seconds = LAUNCH_SECONDS

    def seconds(self, m: Floats, n: Floats, k: Floats) -> Floats:
        """Return launch + max(2 m n k / rate, bytes / bandwidth); every operand moves once."""
        compute = 2.0 * m * n * k / self.flops_per_second
        moved = self.element_bytes * (m * k + k * n + m * n) / self.bytes_per_second
        return self.launch_seconds + np.maximum(compute, moved)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Grid:
    """log of seconds over roofline at the nodes of one stack's grid, gaps filled from their neighbours."""

    ladders: tuple[Floats, ...]
    deviation: Floats
    rows: Stack
    """The rows on the grid."""
    misses: Floats
    """log of what a node would be without its own row over what it is; NaN at corners and gaps."""

    @property
    def relative_error(self) -> float:
        """One standard deviation of the error when a node is found from its neighbours."""
        return NORMAL_MEDIAN * float(np.nanmedian(np.abs(self.misses)))

    def covers(self, m: float, n: float, k: float) -> bool:
        """Tell whether a shape lies between measured ones in every size."""
        return all(
            ladder[0] <= size <= ladder[-1] for ladder, size in zip(self.ladders, (m, n, k), strict=True)
        )

    def resampled(self, ladders: Sequence[Floats]) -> Floats:
        """Return the deviation at the nodes of other ladders; NaN outside of its own."""
        values = self.deviation
        for axis, (old, new) in enumerate(zip(self.ladders, ladders, strict=True)):
            values = np.moveaxis(np.tensordot(_interpolation(old, new), values, axes=(1, axis)), 0, axis)
        return values


def grid(stack: Stack, roofline: Roofline) -> Grid | None:
    """Return the grid among a stack's rows, or None where they are scattered."""
    found = grid_of(stack)
    if found is None:
        return None
    ladders, on_grid = found
    base = _log_roofline(roofline, ladders)
    deviation = np.full(base.shape, np.nan)
    rows = stack.where(on_grid)
    nodes = _nodes(ladders, rows)
    deviation[nodes] = np.log(rows.seconds) - base[nodes]
    log_ladders = [np.log(ladder) for ladder in ladders]
    return Grid(
        ladders=ladders,
        deviation=fill_along(deviation, log_ladders),
        rows=rows,
        misses=left_out(deviation, log_ladders) - deviation,
    )


def standing_rows(one: Grid, surface: Surface) -> Stack:
    """Return the rows of a grid that the surface passes through, but for a twentieth."""
    axes = [np.exp(axis) for axis in surface.log_axes]
    nodes = tuple(_nearest(axis, column) for axis, column in zip(axes, one.rows.shapes.T, strict=True))
    return one.rows.where(np.abs(surface.log_seconds[nodes] - np.log(one.rows.seconds)) < STANDS)


def _nearest(axis: Floats, sizes: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the place on an ascending axis that is nearest to each size, the lower of two as near."""
    above = np.clip(axis.searchsorted(sizes), 1, len(axis) - 1)
    is_below = sizes - axis[above - 1] <= axis[above] - sizes
    return np.asarray(above - is_below, dtype=np.intp)


def _nodes(ladders: Sequence[Floats], rows: Stack) -> tuple[NDArray[np.intp], ...]:
    return tuple(ladder.searchsorted(column) for ladder, column in zip(ladders, rows.shapes.T, strict=True))


def surface_through(grids: Sequence[Grid], roofline: Roofline) -> Surface:
    """Return the surface through the slower of the grids at each shape, widened to all sizes.

    One that is slower than another by more than ``OUTLIER`` was held back: the faster counts.
    """
    ladders = [reduce(np.union1d, axis) for axis in zip(*(one.ladders for one in grids), strict=True)]
    each = [one.resampled(ladders) for one in grids]
    slowest, fastest = reduce(np.fmax, each), reduce(np.fmin, each)
    slower = np.where(slowest - fastest > np.log(OUTLIER), fastest, slowest)
    wide = [_widened(ladder) for ladder in ladders]
    deviation = np.full([len(axis) for axis in wide], np.nan)
    nodes = [axis.searchsorted(ladder) for axis, ladder in zip(wide, ladders, strict=True)]
    deviation[np.ix_(*nodes)] = slower
    log_axes = tuple(np.log(axis) for axis in wide)
    log_seconds = _log_roofline(roofline, wide) + fill_along(deviation, log_axes)
    return Surface(log_axes=log_axes, log_seconds=monotone(log_seconds))


def best_rate(surface: Surface) -> FlopsPerSecond:
    """Return the best rate at the nodes: between them its logarithm is a mean of theirs, beyond it stays."""
    log_flops = np.log(2.0) + sum(np.meshgrid(*surface.log_axes, indexing="ij"))
    return float(np.exp((log_flops - surface.log_seconds).max()))


def _log_roofline(roofline: Roofline, ladders: Sequence[Floats]) -> Floats:
    return np.log(roofline.seconds(*np.meshgrid(*ladders, indexing="ij")))


def _widened(ladder: Floats) -> Floats:
    below = [size for size in LOWER_NODES if size < ladder[0]]
    above = [ladder[-1] * factor for factor in UPPER_FACTORS]
    return np.concatenate([below, ladder, above])


def _interpolation(old: Floats, new: Floats) -> Floats:
    """Return the matrix [new, old] that interpolates between logarithms; NaN rows outside of ``old``."""
    rows = [np.interp(np.log(new), np.log(old), unit, left=np.nan, right=np.nan) for unit in np.eye(len(old))]
    return np.stack(rows, axis=1)
