"""How long matrix products take on a device, by phase: measured, lent by a relative, or by the datasheet."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.cluster import Device
from planner.cost.lenders import borrowed_products, datasheet_roofline, profiles_of
from planner.cost.matrix_products import (
    LEAST_OWN,
    Borrowed,
    Pace,
    ProductTimes,
    datasheet_times,
    product_times,
)
from planner.cost.product_grid import Roofline
from planner.cost.product_rows import Stack, best_rate_of, best_shape_rate, held_in_step, stacks_of
from planner.errors import MissingMeasurements
from planner.formats import measured_formats
from planner.job import Precision
from planner.profile import Profile
from planner.units import BytesPerSecond
from planner.workload.operators import Phase

LARGE_OVER_BEST: Final = 0.85
"""Rate of large products over that of the best shape: V100 0.93, A100 0.92, H100 0.85, B200 0.64."""
DATASHEET_ERROR: Final = 0.25
"""Relative error, one standard deviation, of a rate that no measurement backs."""
FAMILY_PACES: Final[Mapping[str, Pace]] = {
    "ampere": Pace(factor=1.01, relative_error=0.04),
    "hopper": Pace(factor=1.10, relative_error=0.06),
    "blackwell": Pace(factor=1.10, relative_error=0.10),
}
"""Time of a product in a running step over the slower of its burst times, by family of device.

Ampere: fp16 training products on A100 SXM take 1.00 (forward, 32 large shapes) and 0.96 (input
gradient); under 300 W instead of 400 W 1.08. Hopper: layers timed one after the other on H100 1.06,
training products on GH200 1.12 to 1.22. Blackwell: 405B steps on GB200 run products at about 1300 of
the burst's 1450 TFLOP/s; one B200 machine, whose own rows say so, takes 1.33.
"""
DEVICE_PACES: Final[Mapping[str, Pace]] = {"GB300": Pace(factor=1.02, relative_error=0.10)}
"""The same for devices that differ from their family, by how their names begin: 1400 W instead of 1200 W
hold clocks that GB200 does not (8B and 405B steps in fp8 take 0.80 to 0.84 of those on GB200)."""
FAMILY_HOLDS: Final[Mapping[str, float]] = {"blackwell": 1.05}
"""Time of long products in a step over the same ones in a loop of their own, where power holds them back:
steps of two models on B200 take 1.04 of the sum of their kernels at tp 1, 1.06 at tp 2 and 4."""
OTHER_PACE: Final = Pace(factor=1.10, relative_error=0.10)
GRADIENT_RATIOS: Final[Mapping[Phase, float]] = {Phase.INPUT_GRADIENT: 1.00, Phase.WEIGHT_GRADIENT: 1.05}
"""Time of a gradient over a forward product of its shape: medians of training products on A100 and B200;
quartiles 0.97 to 1.05 and 1.01 to 1.10."""


def forward_times(
    device: Device, profiles: Sequence[Profile], precision: Precision, *, bytes_per_second: BytesPerSecond
) -> ProductTimes:
    """Return the forward times of products: measured ones, a relative's, else the datasheet's.

    Raises MissingMeasurements where there is none of them.
    """
    own = profiles_of(device, profiles)
    stacks = _stacks(device, own, precision, Phase.FORWARD)
    roofline = roofline_of(device, precision, stacks, bytes_per_second=bytes_per_second)

    def borrow(num_rows: int) -> Borrowed | None:
        # Enough rows of its own tell more of a device than another architecture does.
        enough = num_rows >= LEAST_OWN
        return borrowed_products(device, profiles, precision, roofline, only_same_architecture=enough)

    times = product_times(stacks, roofline, family_pace=family_pace(device), borrow=borrow)
    return times or _from_datasheet(device, own, precision, roofline)


def roofline_of(
    device: Device,
    precision: Precision,
    stacks: Sequence[Stack],
    *,
    bytes_per_second: BytesPerSecond,
) -> Roofline:
    """Return the roofline of the datasheet, or of the best rows where that has no rate of the format."""
    roofline = datasheet_roofline(device, precision, bytes_per_second=bytes_per_second)
    if stacks and not roofline.flops_per_second:
        return replace(roofline, flops_per_second=max(map(best_rate_of, stacks)))
    return roofline


def _from_datasheet(
    device: Device, own: Sequence[Profile], precision: Precision, roofline: Roofline
) -> ProductTimes:
    """Return the roofline, at the rate of the best shape where somebody searched for it."""
    best = best_shape_rate(own, dtypes=measured_formats(device, precision))
    if best is not None:
        roofline = replace(roofline, flops_per_second=LARGE_OVER_BEST * best)
    if roofline.flops_per_second > 0:
        return datasheet_times(roofline, relative_error=DATASHEET_ERROR)
    raise MissingMeasurements(
        f"no measurement and no datasheet rate of {precision} on {device.name}", device=device.name
    )


def all_phases(
    forward: ProductTimes, device: Device, profiles: Sequence[Profile], precision: Precision
) -> Mapping[Phase, ProductTimes]:
    """Return forward times and those of both gradients, bounded by rows of their own."""
    own = profiles_of(device, profiles)
    gradients = {
        phase: forward.of_phase(_stacks(device, own, precision, phase), ratio=ratio)
        for phase, ratio in GRADIENT_RATIOS.items()
    }
    return {Phase.FORWARD: forward, **gradients}


def _stacks(
    device: Device, profiles: Sequence[Profile], precision: Precision, phase: Phase
) -> tuple[Stack, ...]:
    """Return what was measured of one phase, at the pace of a step where power holds a device back."""
    stacks = stacks_of(profiles, dtypes=measured_formats(device, precision), phase=phase)
    factor = FAMILY_HOLDS.get(_family(device))
    return stacks if factor is None else tuple(held_in_step(stack, factor=factor) for stack in stacks)


def family_pace(device: Device) -> Pace:
    """Return the pace of a running step over bursts for the family of a device."""
    own = (pace for name, pace in DEVICE_PACES.items() if device.name.startswith(name))
    return next(own, FAMILY_PACES.get(_family(device), OTHER_PACE))


def _family(device: Device) -> str:
    return device.architecture.replace("-", " ").split(" ")[0]
