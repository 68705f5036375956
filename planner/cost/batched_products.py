"""The time of products of activations with activations, many small ones at once: unfused attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.affine import fit_nonnegative
from planner.cost.product_grid import Roofline
from planner.profile import Profile, Provenance
from planner.units import Flops, FlopsPerSecond, Seconds
from planner.workload.operators import Phase

Floats = NDArray[np.float64]

SHARE_OF_PRODUCT_RATE: Final = 1.05
SHARE_OF_BANDWIDTH: Final = 0.87
"""Rates that, one after the other, account for the fp16 products of unfused attention on A100: fitted to 24
shapes with head dimensions 64 and 128, to 18 % in the median; on GH200 1.04 and 1.03."""
START_SECONDS: Final[Seconds] = 5e-6
LEAST_ROWS: Final = 8
FITTED_ERROR: Final = 0.15
DERIVED_ERROR: Final = 0.20
"""Relative errors, one standard deviation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchedTimes:
    """start + FLOP / rate + bytes / bandwidth: such products are bound by both in turn."""

    start_seconds: Seconds
    seconds_per_flop: float
    seconds_per_element: float
    provenance: Provenance
    relative_error: float

    def seconds(self, count: int, m: int, n: int, k: int) -> Seconds:
        """Return the time of ``count`` products of m x n x k in one kernel."""
        flops: Flops = 2.0 * count * m * n * k
        elements = float(count) * (m * k + k * n + m * n)
        return self.start_seconds + self.seconds_per_flop * flops + self.seconds_per_element * elements

    @property
    def best_flops_per_second(self) -> FlopsPerSecond:
        """A rate that no shape exceeds."""
        return 1.0 / self.seconds_per_flop


def batched_times(
    profiles: Sequence[Profile],
    *,
    dtypes: Sequence[str],
    roofline: Roofline,
    product_rate: FlopsPerSecond,
    product_provenance: Provenance,
) -> BatchedTimes:
    """Return the times from the profiles' batched products, else from rates of products and memory."""
    fitted = _fitted(profiles, dtypes=dtypes)
    if fitted is not None:
        return fitted
    measured = product_provenance is not Provenance.DATASHEET
    bandwidth = SHARE_OF_BANDWIDTH * roofline.bytes_per_second
    return BatchedTimes(
        start_seconds=START_SECONDS,
        seconds_per_flop=1.0 / (SHARE_OF_PRODUCT_RATE * product_rate),
        seconds_per_element=roofline.element_bytes / bandwidth,
        provenance=Provenance.INTERPOLATED if measured else Provenance.DATASHEET,
        relative_error=DERIVED_ERROR,
    )


def _fitted(profiles: Sequence[Profile], *, dtypes: Sequence[str]) -> BatchedTimes | None:
    shapes, seconds = batched_rows(profiles, dtypes=dtypes)
    return fitted_times(shapes, seconds) if len(seconds) >= LEAST_ROWS else None


def batched_rows(profiles: Sequence[Profile], *, dtypes: Sequence[str]) -> tuple[Floats, Floats]:
    """Return measured shapes [rows, 4] as (count, m, n, k), and their seconds."""
    tables = [
        table
        for profile in profiles
        for table in profile.tables("batched_matrix_product")
        if table.dtype in dtypes and table.phase == Phase.FORWARD
    ]
    shapes = [np.stack([table.column(dim) for dim in ("batch", "m", "n", "k")], axis=1) for table in tables]
    return (
        np.concatenate([np.zeros((0, 4)), *shapes]).astype(np.float64),
        np.concatenate([np.zeros(0), *(table.seconds for table in tables)]),
    )


def fitted_times(shapes: Floats, seconds: Floats) -> BatchedTimes:
    """Return the times with the least relative squares through the rows."""
    count, m, n, k = shapes.T
    columns = [np.ones(len(seconds)), 2.0 * count * m * n * k, count * (m * k + k * n + m * n)]
    start, per_flop, per_element = fit_nonnegative(columns, seconds, needed=1).tolist()
    return BatchedTimes(
        start_seconds=start,
        seconds_per_flop=per_flop,
        seconds_per_element=per_element,
        provenance=Provenance.INTERPOLATED,
        relative_error=FITTED_ERROR,
    )
