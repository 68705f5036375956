"""Curves through a profile's measurements, with what they leave over: how kernels and links behave.

A kernel starts, computes and moves memory: seconds = start + FLOP / rate + bytes / bandwidth. A
collective between so many ranks starts and moves its payload: seconds = start + bytes / bandwidth.
What lies far from its curve is either a shape that a device dislikes or a measurement that was disturbed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.memory_passes import COUNTED_DIMS, ELEMENT_BYTES, MOVED, Moved
from planner.measurements import KernelTable
from planner.profile import Profile
from planner.units import Seconds

Floats = NDArray[np.float64]

LEAST_ROWS: Final = 4
"""Rows that a curve with three terms is not drawn exactly through."""
PRODUCTS: Final = ("matrix_product", "grouped_matrix_product", "batched_matrix_product")
ROUNDS: Final = 8
"""Of reweighting by which rows far from the curve pull less."""
SMALLEST_RESIDUAL: Final = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One measurement beside its curve; ``amount`` is FLOP, or bytes where memory binds."""

    label: str
    amount: float
    seconds: Seconds
    fitted_seconds: Seconds

    @property
    def residual(self) -> float:
        """Measured over fitted, less 1: above zero where it is slower than its like."""
        return self.seconds / self.fitted_seconds - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """The curve of one kind of kernel, or of one collective between so many ranks.

    ``per_second`` is its rate in the long run: FLOP/s, or B/s where memory or a link binds.
    """

    kind: str
    unit: str
    start_seconds: Seconds
    per_second: float | None
    points: tuple[Point, ...]

    @property
    def median_abs_residual(self) -> float:
        """How far the middle measurement lies from the curve."""
        return float(np.median([abs(point.residual) for point in self.points]))

    @property
    def p90_abs_residual(self) -> float:
        """How far nine of ten measurements lie from the curve at the most."""
        return float(np.quantile([abs(point.residual) for point in self.points], 0.9))

    @property
    def worst(self) -> Point:
        """The measurement that lies furthest from the curve."""
        return max(self.points, key=lambda point: abs(point.residual))


def fit_profile(profile: Profile) -> tuple[Curve, ...]:
    """Return the curves of a profile: kinds of kernels, then collectives; none through too few rows."""
    return (*_kernel_curves(profile.kernels), *_collective_curves(profile))


def _kernel_curves(tables: Sequence[KernelTable]) -> Iterator[Curve]:
    for table in sorted(tables, key=lambda table: (table.operator, table.dtype, table.phase)):
        amounts = _amounts(table)
        if amounts is None or len(table) < LEAST_ROWS:
            continue
        flops, moved = amounts
        terms = [np.ones(len(table)), *((flops,) if flops.any() else ()), moved]
        start, *rates = _fitted(np.stack(terms, axis=1), table.seconds)
        fitted = np.stack(terms, axis=1) @ np.array([start, *rates])
        labels = [" ".join(f"{dim}={size}" for dim, size in shape.items()) for shape in _shapes(table)]
        yield Curve(
            kind=f"{table.operator} {table.dtype} {table.phase}",
            unit="FLOP" if flops.any() else "B",
            start_seconds=float(start),
            per_second=float(1 / rates[0]) if rates[0] > 0 else None,
            points=_points(labels, flops if flops.any() else moved, table.seconds, fitted),
        )


def _collective_curves(profile: Profile) -> Iterator[Curve]:
    groups: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    for row in profile.collectives:
        key = (row.operation, row.world_size, row.ranks_per_node)
        groups.setdefault(key, []).append((row.payload_bytes, row.seconds))
    for (operation, ranks, per_node), rows in sorted(groups.items()):
        payload, seconds = np.array(sorted(rows)).T
        if len(rows) < LEAST_ROWS:
            continue
        terms = np.stack([np.ones(len(rows)), payload], axis=1)
        start, per_byte = _fitted(terms, seconds)
        yield Curve(
            kind=f"{operation}, {ranks} ranks, {per_node} per node",
            unit="B",
            start_seconds=float(start),
            per_second=float(1 / per_byte) if per_byte > 0 else None,
            points=_points(
                [f"{size:.0f} B" for size in payload.tolist()], payload, seconds, terms @ (start, per_byte)
            ),
        )


def _points(labels: Sequence[str], amounts: Floats, seconds: Floats, fitted: Floats) -> tuple[Point, ...]:
    rows = zip(labels, amounts.tolist(), seconds.tolist(), fitted.tolist(), strict=True)
    return tuple(
        Point(label=label, amount=amount, seconds=measured, fitted_seconds=curve)
        for label, amount, measured, curve in sorted(rows, key=lambda row: row[1])
    )


def _shapes(table: KernelTable) -> list[dict[str, int]]:
    return list(table.shape_documents())


def _amounts(table: KernelTable) -> tuple[Floats, Floats] | None:
    """Return FLOP and bytes of each row; None for operators of which nobody says what they move."""
    width = float(ELEMENT_BYTES.get(table.dtype, 1))
    columns: Mapping[str, Any] = {dim: table.column(dim).astype(np.float64) for dim in table.dims}
    if table.operator in PRODUCTS:
        m, n, k = (columns[dim] for dim in "mnk")
        count = columns.get("groups", 1.0) * columns.get("batch", 1.0)
        return 2.0 * count * m * n * k, width * count * (m * k + k * n + m * n)
    if table.operator == "attention":
        pairs = columns["batch"] * columns["heads"] * columns["sequence"] ** 2
        flops = pairs * (columns["head_dim"] + columns["value_dim"]) * (2.0 - columns["causal"])
        return flops, width * columns["batch"] * columns["sequence"] * columns["heads"] * 4 * columns[
            "head_dim"
        ]
    counted = [columns[dim] for dim in table.dims if dim in COUNTED_DIMS]
    if not counted:
        return None
    moved = MOVED.get((table.operator, table.phase), Moved(1)).bytes_per_element(width)
    return np.zeros(len(table)), moved * np.prod(counted, axis=0)


def _fitted(terms: Floats, seconds: Floats) -> Floats:
    """Return coefficients of no negative sign that fit the times by their relative errors.

    Rows are divided by their time, so that short and long ones count alike; those far from the curve
    are weighted down (least absolute residuals by reweighting), terms that come out negative left out.
    """
    relative = terms / seconds[:, None]
    weights = np.ones(len(seconds))
    found = np.zeros(terms.shape[1])
    for _ in range(ROUNDS):
        found = _not_negative(relative * weights[:, None], weights)
        residuals = np.abs(relative @ found - 1)
        weights = 1 / np.sqrt(np.maximum(residuals, SMALLEST_RESIDUAL))
    return found


def _not_negative(terms: Floats, target: Floats) -> Floats:
    kept = list(range(terms.shape[1]))
    while True:
        scale = np.linalg.norm(terms[:, kept], axis=0)
        solved = np.linalg.lstsq(terms[:, kept] / scale, target, rcond=None)[0] / scale
        if len(kept) == 1 or (solved >= 0).all():
            found = np.zeros(terms.shape[1])
            found[kept] = np.maximum(solved, 0)
            return found
        kept.pop(int(np.argmin(solved)))
