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
WIDE_PAYLOADS: Final = tuple(2.0**power for power in range(8, 37, 2))
"""Payloads at which a curve follows the model beyond and between what was measured."""
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
    is_scaled: bool
    """Whether the rows ran over links of another bandwidth, or on a relative."""

    def estimate(self, payload_bytes: Bytes, count: int) -> Estimate:
        """Return the time for one payload and count."""
        exact = (payload_bytes, count) in self.hits
        inside = (
            self.payloads[0] <= payload_bytes <= self.payloads[1]
            and self.counts[0] <= count <= self.counts[1]
        )
        elsewhere = INTERPOLATED_ERROR if inside and not self.is_scaled else OUTSIDE_ERROR
        return Estimate(
            seconds=self.surface(payload_bytes, count),
            provenance=Provenance.MEASURED if exact else Provenance.INTERPOLATED,
            relative_error=MEASURED_ERROR if exact else elsewhere,
        )


def curve_through(
    timings: Sequence[Timing],
    model: Model,
    *,
    reference: Model | None = None,
    larger_is_slower: bool = True,
) -> Curve:
    """Return the curve through the fastest of the timings at each payload and count.

    Gaps take the deviation from the model that their neighbours have. A larger payload (or count,
    where ``larger_is_slower``) that was faster shows what the smaller one can take at most; among
    directly joined devices a larger group does find more links. ``reference`` is the model of the
    links that the timings ran over, where those are not the group's: the deviation from it holds.
    """
    payloads = np.unique([*WIDE_PAYLOADS, *(timing.payload_bytes for timing in timings)])
    counts = np.unique([*WIDE_COUNTS, *(timing.count for timing in timings)]).astype(np.float64)
    log_axes = (np.log(payloads), np.log(counts))
    base = _log_model(model, payloads, counts)
    there = base if reference is None else _log_model(reference, payloads, counts)
    deviation = fill_along(_fastest(timings, payloads, counts, there), log_axes)
    axes = (0, 1) if larger_is_slower else (0,)
    log_seconds = running_minimum(base + deviation, axes=axes)
    surface = Surface(log_axes=log_axes, log_seconds=log_seconds, growth=(1.0, 1.0))
    sizes = [timing.payload_bytes for timing in timings]
    numbers = [timing.count for timing in timings]
    return Curve(
        surface=surface,
        hits=frozenset(_hits(timings, surface) if reference is None else ()),
        payloads=(min(sizes), max(sizes)),
        counts=(min(numbers), max(numbers)),
        is_scaled=reference is not None or not all(timing.is_own for timing in timings),
    )


def _log_model(model: Model, payloads: Floats, counts: Floats) -> Floats:
    return np.log(
        [[model(payload, round(count)) for count in counts.tolist()] for payload in payloads.tolist()]
    )


def _fastest(timings: Sequence[Timing], payloads: Floats, counts: Floats, base: Floats) -> Floats:
    """Return the least deviation from the base that any stack has at each node; NaN where none has."""
    by_stack: dict[str, list[Timing]] = {}
    for timing in timings:
        by_stack.setdefault(timing.stack, []).append(timing)
    return reduce(np.fmin, [_deviation(stack, payloads, counts, base) for stack in by_stack.values()])


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
