"""The time of one matrix product of any shape, from measured ones of the same device and format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.cost.envelope import Envelope
from planner.cost.product_grid import (
    NORMAL_MEDIAN,
    Grid,
    Roofline,
    best_rate,
    grid,
    standing_rows,
    surface_through,
)
from planner.cost.product_line import fitted_line
from planner.cost.product_rows import Stack, together
from planner.units import FlopsPerSecond, Seconds

Shape = tuple[int, int, int]
SecondsOf = Callable[[float, float, float], Seconds]

LEAST_SUSTAINED: Final = 12
"""So many products at a step's pace fix the pace; fewer leave it to the family of the device."""
LEAST_OWN: Final = 8
"""So many scattered rows tell more of a device than a relative does."""
EXACT_ERROR: Final = 0.02
SCATTERED_ERROR: Final = 0.10
OUTSIDE_ERROR: Final = 0.15
ANCHORED_ERROR: Final = 0.08
"""Relative errors, one standard deviation: run to run; between scattered rows; beyond measured sizes;
between own rows on a relative's surface."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Time of a kernel inside a running step over its time in a burst on a cool device, and its spread."""

    factor: float
    relative_error: float


BURST_IS_PACE: Final = Pace(factor=1.0, relative_error=0.0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Borrowed:
    """Times of a relative, in bursts or at a step's pace, on the roofline of the device itself.

    ``level`` is the factor by which best shapes say that the device is slower; None where nobody
    searched. ``relative_error`` is how far relatives of this closeness lie apart.
    """

    base: SecondsOf
    best_flops_per_second: FlopsPerSecond
    grids: tuple[Grid, ...]
    is_burst: bool
    relative_error: float
    is_same_chip: bool = False
    level: float | None = None


Borrow = Callable[[int], Borrowed | None]
"""Returns what a relative tells of a device that has so many scattered rows of its own."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProductTimes:
    """Seconds of a product of any shape: a monotone base, bounded by measured points."""

    base: SecondsOf
    points: Envelope
    hits: frozenset[Shape]
    grids: tuple[Grid, ...]
    best_flops_per_second: FlopsPerSecond
    """A rate that no shape exceeds."""
    interpolation_error: float
    pace_error: float
    is_measured: bool = True
    """False where the datasheet alone speaks."""

    def seconds(self, m: int, n: int, k: int) -> Seconds:
        """Return the time of C[m, n] = A[m, k] B[k, n]; never less for a larger shape."""
        return self.points.clip(self.base(m, n, k), m, n, k)

    def relative_error(self, m: int, n: int, k: int) -> float:
        """Return one standard deviation of the relative error at a shape."""
        if (m, n, k) in self.hits:
            here = EXACT_ERROR
        elif self.grids and not any(one.covers(m, n, k) for one in self.grids):
            here = max(OUTSIDE_ERROR, self.interpolation_error)
        else:
            here = self.interpolation_error
        return float(np.hypot(here, self.pace_error))

    def of_phase(self, rows: Sequence[Stack], *, ratio: float) -> "ProductTimes":
        """Return the times of a gradient: ``ratio`` times these, bounded by the rows of its own."""
        base = self.base
        points = together([stack for stack in rows if not stack.is_burst])
        envelope = Envelope.of(points.shapes, points.seconds)
        return ProductTimes(
            base=lambda m, n, k: ratio * base(m, n, k),
            points=envelope,
            hits=_hits(points),
            grids=self.grids,
            best_flops_per_second=max(self.best_flops_per_second / ratio, _best_rate_of(points, envelope)),
            interpolation_error=self.interpolation_error,
            pace_error=self.pace_error,
            is_measured=self.is_measured,
        )


def product_times(
    stacks: Sequence[Stack], roofline: Roofline, *, family_pace: Pace, borrow: Borrow | None = None
) -> ProductTimes | None:
    """Return the times of all shapes from the stacks' rows, or from a relative's; None where there are none.

    Grids make the surface: of several stacks the slower at each shape, since times at a step's pace
    stay proportional to that one. Rows at that pace fix the factor and bound the surface; scattered
    bursts count only where nothing else does. Without a grid a relative may lend its own.
    """
    sustained = together([stack for stack in stacks if not stack.is_burst])
    bursts = [stack for stack in stacks if stack.is_burst]
    for candidates, pace in (([sustained], BURST_IS_PACE), (bursts, family_pace)):
        grids = [one for one in (grid(stack, roofline) for stack in candidates) if one is not None]
        if grids:
            return _from_grids(grids, sustained, roofline, pace=pace)
    num_rows = max(len(sustained.seconds), len(together(bursts).seconds))
    borrowed = borrow(num_rows) if borrow else None
    if borrowed is not None:
        return _from_borrowed(borrowed, sustained, together(bursts), family_pace=family_pace)
    if len(sustained.seconds):
        return _from_points(sustained, pace=BURST_IS_PACE)
    return _from_points(together(bursts), pace=family_pace) if bursts else None


def datasheet_times(roofline: Roofline, *, relative_error: float) -> ProductTimes:
    """Return the times of all shapes from the roofline alone."""
    return ProductTimes(
        base=_roofline_seconds(roofline),
        points=Envelope.of(np.zeros((0, 3)), np.zeros(0)),
        hits=frozenset(),
        grids=(),
        best_flops_per_second=roofline.flops_per_second,
        interpolation_error=relative_error,
        pace_error=0.0,
        is_measured=False,
    )


def _from_grids(grids: Sequence[Grid], points: Stack, roofline: Roofline, *, pace: Pace) -> ProductTimes:
    surface = surface_through(grids, roofline)
    if pace.factor != 1.0 and len(points.seconds) >= LEAST_SUSTAINED:
        pace = _pace_of(points, surface)
    factor = pace.factor
    envelope = Envelope.of(points.shapes, points.seconds)
    return ProductTimes(
        base=lambda m, n, k: factor * surface(m, n, k),
        points=envelope,
        hits=_hits(points).union(*(_hits(standing_rows(one, surface)) for one in grids)),
        grids=tuple(grids),
        best_flops_per_second=max(best_rate(surface) / factor, _best_rate_of(points, envelope)),
        interpolation_error=float(np.median([one.relative_error for one in grids])),
        pace_error=pace.relative_error,
    )


def _from_borrowed(borrowed: Borrowed, sustained: Stack, bursts: Stack, *, family_pace: Pace) -> ProductTimes:
    """Return a relative's times, at the level that the device's own rows set where there are enough."""
    pace, error = _borrowed_pace(borrowed, sustained, bursts, family_pace)
    base, factor = borrowed.base, pace.factor
    envelope = Envelope.of(sustained.shapes, sustained.seconds)
    return ProductTimes(
        base=lambda m, n, k: factor * base(m, n, k),
        points=envelope,
        hits=_hits(sustained),
        grids=borrowed.grids,
        best_flops_per_second=max(
            borrowed.best_flops_per_second / factor, _best_rate_of(sustained, envelope)
        ),
        interpolation_error=error,
        pace_error=pace.relative_error,
        is_measured=borrowed.is_same_chip or error == ANCHORED_ERROR,
    )


def _borrowed_pace(
    borrowed: Borrowed, sustained: Stack, bursts: Stack, family_pace: Pace
) -> tuple[Pace, float]:
    """Return the factor on a relative's times, and the error of their level.

    Without own rows at a step's pace the family's pace comes on top of bursts.
    """
    if len(sustained.seconds) >= LEAST_SUSTAINED:
        return _pace_of(sustained, borrowed.base, least_factor=0.0), ANCHORED_ERROR
    if len(bursts.seconds) >= LEAST_SUSTAINED:
        level = _pace_of(bursts, borrowed.base, least_factor=0.0).factor
        return replace(family_pace, factor=level * family_pace.factor), ANCHORED_ERROR
    level = 1.0 if borrowed.level is None else borrowed.level
    pace = family_pace if borrowed.is_burst else BURST_IS_PACE
    return replace(pace, factor=level * pace.factor), borrowed.relative_error


def _from_points(points: Stack, *, pace: Pace) -> ProductTimes:
    """Return a line fitted to the points and bounded by them."""
    paced = replace(points, seconds=points.seconds * pace.factor)
    line = fitted_line(paced)
    envelope = Envelope.of(paced.shapes, paced.seconds)
    return ProductTimes(
        base=line.seconds,
        points=envelope,
        hits=_hits(points),
        grids=(),
        best_flops_per_second=max(1.0 / line.seconds_per_flop, _best_rate_of(paced, envelope)),
        interpolation_error=SCATTERED_ERROR,
        pace_error=pace.relative_error,
    )


def _pace_of(points: Stack, surface: SecondsOf, *, least_factor: float = 1.0) -> Pace:
    """Return the median of the points' times over the surface's, and its spread."""
    ratios = np.log(
        [time / surface(*shape) for shape, time in zip(points.shapes.tolist(), points.seconds, strict=True)]
    )
    middle = float(np.median(ratios))
    spread = NORMAL_MEDIAN * float(np.median(np.abs(ratios - middle)))
    return Pace(factor=max(least_factor, float(np.exp(middle))), relative_error=spread)


def _hits(stack: Stack) -> frozenset[Shape]:
    return frozenset((m, n, k) for m, n, k in stack.shapes.tolist())


def _best_rate_of(points: Stack, envelope: Envelope) -> FlopsPerSecond:
    return float((points.flops / envelope.seconds).max(initial=0.0))


def _roofline_seconds(roofline: Roofline) -> SecondsOf:
    rate, launch = roofline.flops_per_second, roofline.launch_seconds
    per_element = roofline.element_bytes / roofline.bytes_per_second

    def seconds(m: float, n: float, k: float) -> Seconds:
        return launch + max(2.0 * m * n * k / rate, per_element * (m * k + k * n + m * n))

    return seconds
