"""How long the attention core takes on a device: swept, or lent by the nearest relative that was."""

from collections.abc import Sequence
from typing import Final

from planner.cluster import Device
from planner.cost.attention import LEAST_ROWS, AttentionTimes
from planner.cost.lenders import lenders_of, profiles_of, slowness_of
from planner.cost.matrix_products import ANCHORED_ERROR
from planner.formats import measured_formats
from planner.job import Precision
from planner.profile import Profile, Provenance
from planner.units import FlopsPerSecond

LEAST_CORES: Final = 100
"""Fewer attention cores of its own tell less of a device than a relative's sweep at their level."""


def attention_times(
    device: Device, profiles: Sequence[Profile], precision: Precision, *, product_rate: FlopsPerSecond
) -> AttentionTimes:
    """Return the times of the attention core: swept ones, else the nearest relative's sweep.

    A relative's cores take as much longer here as its peak is higher, or as the device's few own
    rows say.
    """
    own = _attention_of(device, profiles, precision, product_rate=product_rate)
    if own.num_rows >= LEAST_CORES:
        return own
    for lender in lenders_of(device, profiles, precision):
        theirs = _attention_of(lender.device, lender.profiles, precision, product_rate=product_rate)
        if theirs.num_rows >= LEAST_CORES and lender.precision is precision:
            slowness = slowness_of(device, profiles_of(device, profiles), lender, precision)
            is_near = lender.is_same_chip or own.num_rows >= LEAST_ROWS
            lent = theirs.lent(
                slowness,
                relative_error=lender.relative_error,
                provenance=Provenance.INTERPOLATED if is_near else Provenance.DATASHEET,
            )
            if own.num_rows < LEAST_ROWS:
                return lent
            level = own.over(lent)
            return lent.lent(level, relative_error=ANCHORED_ERROR, provenance=lent.provenance)
    return own


def _attention_of(
    device: Device, profiles: Sequence[Profile], precision: Precision, *, product_rate: FlopsPerSecond
) -> AttentionTimes:
    return AttentionTimes.of(
        profiles_of(device, profiles),
        dtypes=measured_formats(device, precision),
        product_rate=product_rate,
    )
