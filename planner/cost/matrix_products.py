"""The time of one matrix product of any shape, from measured ones of the same device and format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.envelope import Envelope
from planner.cost.surface import Surface, fill_along, monotone
from planner.units import BytesPerSecond, FlopsPerSecond, Seconds

Floats = NDArray[np.float64]

LAUNCH_SECONDS: Final = 3e-6
"""The shortest kernels of the published tables take 3 to 5 us on the device."""
LEAST_FILL: Final = 0.4
"""A grid counts as one when this share of its nodes was measured; else its rows are scattered points."""
LOWER_NODES: Final = (1.0, 16.0, 64.0, 128.0, 256.0)
"""Sizes added below a measured ladder, so that narrow products follow the roofline rather than an edge."""
UPPER_FACTORS: Final = (2.0, 8.0)
"""Sizes added above a measured ladder; beyond them time is proportional to each size."""


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
class Measured:
    """Distinct measured products: shapes [rows, 3] as m, n, k, and the fastest seconds of each."""

    shapes: NDArray[np.int64]
    seconds: Floats

    @classmethod
    def fastest(cls, shapes: NDArray[np.int64], seconds: Floats) -> "Measured":
        """Return each shape once, with the fastest of its times (software stacks differ)."""
        unique, inverse = np.unique(shapes, axis=0, return_inverse=True)
        best = np.full(len(unique), np.inf)
        np.minimum.at(best, inverse.reshape(-1), seconds)
        return cls(shapes=unique, seconds=best)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProductTimes:
    """Seconds of a product of any shape: a surface through the measured grid, bounded by scattered points."""

    surface: Callable[..., float]
    envelope: Envelope
    hits: frozenset[tuple[int, int, int]]
    ladders: tuple[Floats, ...]
    best_flops_per_second: FlopsPerSecond
    """A rate that no shape exceeds."""

    def seconds(self, m: int, n: int, k: int) -> Seconds:
        """Return the time of C[m, n] = A[m, k] B[k, n]; never less for a larger shape."""
        return self.envelope.clip(self.surface(m, n, k), m, n, k)

    def inside(self, m: int, n: int, k: int) -> bool:
        """Tell whether a shape lies between measured ones in every size."""
        return all(
            ladder[0] <= size <= ladder[-1] for ladder, size in zip(self.ladders, (m, n, k), strict=True)
        )


def product_times(measured: Measured, roofline: Roofline) -> ProductTimes:
    """Return the times of all shapes from the measured ones; at least one row is needed."""
    axes, on_grid = _grid(measured.shapes)
    ladders = tuple(np.unique(column).astype(np.float64) for column in measured.shapes.T)
    hits = frozenset((m, n, k) for m, n, k in measured.shapes.tolist())
    surface: Callable[..., float]
    if on_grid.any():
        surface = grid = _grid_surface(axes, measured, on_grid, roofline)
        best = _best_rate(grid)
    else:
        surface, best = _scaled_roofline(measured, roofline)
    scattered = Envelope.of(measured.shapes[~on_grid].astype(np.float64), measured.seconds[~on_grid])
    flops = 2.0 * scattered.sizes.prod(axis=1)
    best = max([best, *(flops / scattered.seconds).tolist()])
    return ProductTimes(
        surface=surface, envelope=scattered, hits=hits, ladders=ladders, best_flops_per_second=best
    )


def datasheet_times(roofline: Roofline) -> ProductTimes:
    """Return the times of all shapes from the roofline alone."""
    none = np.zeros((0, 3), dtype=np.float64)
    return ProductTimes(
        surface=_roofline_seconds(roofline, factor=1.0),
        envelope=Envelope(sizes=none, seconds=np.zeros(0)),
        hits=frozenset(),
        ladders=(np.zeros(1),) * 3,
        best_flops_per_second=roofline.flops_per_second,
    )


def _grid(shapes: NDArray[np.int64]) -> tuple[tuple[Floats, ...], NDArray[np.bool_]]:
    """Return the ladders of the largest well-filled grid among the rows, and which rows stand on it."""
    keep = np.ones(len(shapes), dtype=bool)
    while keep.any():
        counts = [np.unique(column, return_counts=True) for column in shapes[keep].T]
        nodes = float(np.prod([len(values) for values, _ in counts]))
        rare = [values[count < LEAST_FILL * nodes / len(values)] for values, count in counts]
        if not any(len(values) for values in rare):
            break
        keep &= ~np.stack(
            [np.isin(column, values) for column, values in zip(shapes.T, rare, strict=True)]
        ).any(0)
    ladders = tuple(np.unique(column).astype(np.float64) for column in shapes[keep].T)
    if any(len(ladder) < 2 for ladder in ladders):  # noqa: PLR2004 - a line needs two ends
        return ladders, np.zeros(len(shapes), dtype=bool)
    return ladders, keep


def _grid_surface(
    axes: Sequence[Floats], measured: Measured, on_grid: NDArray[np.bool_], roofline: Roofline
) -> Surface:
    wide = [_widened(axis) for axis in axes]
    base = np.log(roofline.seconds(*np.meshgrid(*wide, indexing="ij")))
    deviation = np.full(base.shape, np.nan)
    shapes = measured.shapes[on_grid]
    nodes = tuple(axis.searchsorted(column) for axis, column in zip(wide, shapes.T, strict=True))
    deviation[nodes] = np.log(measured.seconds[on_grid]) - base[nodes]
    log_axes = tuple(np.log(axis) for axis in wide)
    return Surface(log_axes=log_axes, log_seconds=monotone(base + fill_along(deviation, log_axes)))


def _widened(axis: Floats) -> Floats:
    below = [size for size in LOWER_NODES if size < axis[0]]
    above = [axis[-1] * factor for factor in UPPER_FACTORS]
    return np.concatenate([below, axis, above])


def _best_rate(surface: Surface) -> FlopsPerSecond:
    """Return the best rate at the nodes: between them its logarithm is a mean of theirs, beyond it stays."""
    log_flops = np.log(2.0) + sum(np.meshgrid(*surface.log_axes, indexing="ij"))
    return float(np.exp((log_flops - surface.log_seconds).max()))


def _scaled_roofline(measured: Measured, roofline: Roofline) -> tuple[Callable[..., float], FlopsPerSecond]:
    """Return the roofline times the median of measured over roofline, and the best rate of that."""
    m, n, k = measured.shapes.T.astype(np.float64)
    factor = float(np.median(measured.seconds / roofline.seconds(m, n, k)))
    return _roofline_seconds(roofline, factor=factor), roofline.flops_per_second / factor


def _roofline_seconds(roofline: Roofline, *, factor: float) -> Callable[..., float]:
    def seconds(m: float, n: float, k: float) -> float:
        return factor * float(roofline.seconds(*np.array([[m], [n], [k]], dtype=np.float64))[0])

    return seconds
