"""Measured collectives as curves: seconds over payload and number of ranks (or of nodes)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.surface import Surface, fill_along, running_minimum
from planner.profile import Estimate, Provenance
from planner.units import Bytes, Seconds

Floats = NDArray[np.float64]
Model = Callable[[Bytes, int], Seconds]
"""Seconds by payload and count where nothing was measured."""

WIDE_COUNTS: Final = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
"""Counts at which a curve follows the model beyond what was measured."""
WIDE_PAYLOADS: Final = (2.0**8, 2.0**36)
"""Payloads at which a curve follows the model beyond what was measured."""
MEASURED_ERROR: Final = 0.05
INTERPOLATED_ERROR: Final = 0.08
OUTSIDE_ERROR: Final = 0.15
"""Relative errors, one standard deviation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """One measured collective: its payload, how many ranks (or nodes) took part, who measured it."""

    payload_bytes: Bytes
    count: int
    seconds: Seconds
    stack: str
    is_own: bool = True
    """False where another device of the same links was measured."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Curve:
    """Seconds of one operation over (payload, count), and what was measured."""

    surface: Surface
    hits: frozenset[tuple[Bytes, int]]
    payloads: tuple[Bytes, Bytes]
    counts: tuple[int, int]

    def estimate(self, payload_bytes: Bytes, count: int) -> Estimate:
        """Return the time for one payload and count."""
        exact = (payload_bytes, count) in self.hits
        inside = (
            self.payloads[0] <= payload_bytes <= self.payloads[1]
            and self.counts[0] <= count <= self.counts[1]
        )
        elsewhere = INTERPOLATED_ERROR if inside else OUTSIDE_ERROR
        return Estimate(
            seconds=self.surface(payload_bytes, count),
            provenance=Provenance.MEASURED if exact else Provenance.INTERPOLATED,
            relative_error=MEASURED_ERROR if exact else elsewhere,
        )


def curve_through(timings: Sequence[Timing], model: Model) -> Curve:
    """Return the curve through the fastest of the timings at each payload and count.

    Gaps take the deviation from the model that their neighbours have. A larger payload or count
    that was faster shows what the smaller one can take at most.
    """
    payloads = np.unique([*WIDE_PAYLOADS, *(timing.payload_bytes for timing in timings)])
    counts = np.unique([*WIDE_COUNTS, *(timing.count for timing in timings)]).astype(np.float64)
    base = np.log([[model(payload, round(count)) for count in counts] for payload in payloads.tolist()])
    log_axes = (np.log(payloads), np.log(counts))
    stacks = sorted({timing.stack for timing in timings})
    fastest = reduce(
        np.fmin,
        (
            _deviation([one for one in timings if one.stack == stack], payloads, counts, base)
            for stack in stacks
        ),
    )
    log_seconds = running_minimum(base + fill_along(fastest, log_axes))
    surface = Surface(log_axes=log_axes, log_seconds=log_seconds, growth=(1.0, 1.0))
    sizes = [timing.payload_bytes for timing in timings]
    numbers = [timing.count for timing in timings]
    return Curve(
        surface=surface,
        hits=frozenset(_hits(timings, surface)),
        payloads=(min(sizes), max(sizes)),
        counts=(min(numbers), max(numbers)),
    )


def _hits(timings: Sequence[Timing], surface: Surface) -> Iterator[tuple[Bytes, int]]:
    """Yield what was measured and stands: neither another device nor moved to keep the curve monotone."""
    for timing in timings:
        stands = surface(timing.payload_bytes, timing.count) > (1.0 - MEASURED_ERROR) * timing.seconds
        if timing.is_own and stands:
            yield timing.payload_bytes, timing.count


def _deviation(timings: Sequence[Timing], payloads: Floats, counts: Floats, base: Floats) -> Floats:
    """Return one stack's log seconds over the model, along the payloads that it covers; NaN elsewhere."""
    deviation = np.full(base.shape, np.nan)
    for timing in sorted(timings, key=lambda timing: -timing.seconds):
        node = payloads.searchsorted(timing.payload_bytes), counts.searchsorted(timing.count)
        deviation[node] = np.log(timing.seconds) - base[node]
    for column in deviation.T:
        known = ~np.isnan(column)
        if known.any():
            logs = np.log(payloads)
            column[:] = np.interp(logs, logs[known], column[known], left=np.nan, right=np.nan)
    return deviation
