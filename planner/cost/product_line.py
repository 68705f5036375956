"""The line that a handful of scattered products fix: a start, a time per FLOP, a time per element."""

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.affine import fit_nonnegative
from planner.cost.product_rows import Stack
from planner.units import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """start + FLOP / rate + elements / their rate: what scattered rows can tell."""

    start_seconds: Seconds
    seconds_per_flop: float
    seconds_per_element: float

    def seconds(self, m: float, n: float, k: float) -> Seconds:
        """Return the time of C[m, n] = A[m, k] B[k, n]."""
        elements = m * k + k * n + m * n
        return (
            self.start_seconds + self.seconds_per_flop * 2.0 * m * n * k + self.seconds_per_element * elements
        )

    def scaled(self, *, per_flop: float, per_element: float) -> "Line":
        """Return the line of a device that takes so many times as long for a FLOP and for an element."""
        return replace(
            self,
            seconds_per_flop=per_flop * self.seconds_per_flop,
            seconds_per_element=per_element * self.seconds_per_element,
        )


def fitted_line(points: Stack) -> Line:
    """Return the line with the least relative squares through the points, of which there is at least one."""
    m, n, k = points.shapes.T.astype(np.float64)
    columns = [np.ones(len(points.seconds)), points.flops, m * k + k * n + m * n]
    start, per_flop, per_element = fit_nonnegative(columns, points.seconds, needed=1).tolist()
    return Line(start_seconds=start, seconds_per_flop=per_flop, seconds_per_element=per_element)
