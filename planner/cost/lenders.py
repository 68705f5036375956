"""What relatives of a device tell of its matrix products where it was not measured itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from planner.cluster import Device
from planner.cost.matrix_products import Borrowed
from planner.cost.product_grid import Grid, Roofline, best_rate, grid, surface_through
from planner.cost.product_line import fitted_line
from planner.cost.product_rows import Stack, best_shape_rate, stacks_of, together
from planner.devices import device_by_name, device_names
from planner.formats import OPERAND_BYTES, STAND_INS, datasheet_peak, measured_formats
from planner.job import Precision
from planner.profile import Profile
from planner.relatives import LEAST_SCATTERED, Closeness, closeness, nearest_first
from planner.units import BytesPerSecond
from planner.workload.operators import Phase

DATASHEET_EFFICIENCY: Final[Mapping[Precision, float]] = {
    Precision.FP32: 0.75,
    Precision.TF32: 0.65,
    Precision.FP16: 0.72,
    Precision.BF16: 0.72,
    Precision.FP8: 0.55,
    Precision.FP8_BLOCK: 0.55,
    Precision.MXFP8: 0.55,
    Precision.NVFP4: 0.40,
}
"""Share of the datasheet's peak that large products reach, in bursts.

In sixteen bits A100 0.76, H100 0.76, B200 0.68, L40S 0.61; in eight H100 0.56, B200 0.48, GB200 0.45;
in four B200 and GB200 0.3 to 0.5; without tensor cores A100 0.8, H100 0.77, L4 0.4 (72 W).
"""
CLOSENESS_ERROR: Final[Mapping[Closeness, float]] = {
    Closeness.SAME_DEVICE: 0.0,
    Closeness.SAME_CHIP: 0.08,
    Closeness.SAME_ARCHITECTURE: 0.12,
    Closeness.SAME_FAMILY: 0.18,
    Closeness.SAME_VENDOR: 0.22,
}
"""Relative error, one standard deviation, of products by a relative's share of its roofline.

Bursts in bf16, median over all shapes: B300 from GB300 6 %, H200 from H100 5 %, B200 from GB200 9 %;
A100 from H100 9 %, RTX PRO 6000 from B200 22 %; L40S, which its power limit holds back, from any other
12 to 20 %.
"""
WIDE: Final = (Precision.BF16, Precision.FP16)
"""Precisions whose best shapes tell how far power or clock keep a device below its peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lender:
    """A measured device, or the device itself in another format."""

    device: Device
    profiles: Sequence[Profile]
    precision: Precision
    relative_error: float
    is_same_chip: bool = False


def datasheet_roofline(device: Device, precision: Precision, *, bytes_per_second: BytesPerSecond) -> Roofline:
    """Return what a product takes by the datasheet; its rate is zero where that has none."""
    return Roofline(
        flops_per_second=DATASHEET_EFFICIENCY[precision] * (datasheet_peak(device, precision) or 0.0),
        bytes_per_second=bytes_per_second,
        element_bytes=OPERAND_BYTES[precision],
    )


def lenders_of(device: Device, profiles: Sequence[Profile], precision: Precision) -> Iterator[Lender]:
    """Yield who may tell of a device's products in a precision, the nearest first.

    The device itself in a format that stands in, then each relative in the same format, then in those.
    """
    stand_ins = STAND_INS.get(precision, ())
    for one in stand_ins:
        own = profiles_of(device, profiles)
        yield Lender(device=device, profiles=own, precision=one.precision, relative_error=one.relative_error)
    for relative in nearest_first(device, _measured_devices(profiles, other_than=device)):
        theirs = profiles_of(relative, profiles)
        near = _closeness(device, relative)
        error = CLOSENESS_ERROR[near]
        yield Lender(
            device=relative,
            profiles=theirs,
            precision=precision,
            relative_error=error,
            is_same_chip=near is Closeness.SAME_CHIP,
        )
        for one in stand_ins:
            both = (error**2 + one.relative_error**2) ** 0.5
            yield Lender(device=relative, profiles=theirs, precision=one.precision, relative_error=both)


def profiles_of(device: Device, profiles: Iterable[Profile]) -> list[Profile]:
    """Return the profiles that were measured on a device."""
    return [profile for profile in profiles if profile.device == device.name]


def borrowed_products(
    device: Device,
    profiles: Sequence[Profile],
    precision: Precision,
    roofline: Roofline,
    *,
    only_same_architecture: bool = False,
) -> Borrowed | None:
    """Return the nearest lender's burst times on the roofline of a device; None where nobody can tell.

    ``only_same_architecture`` takes nothing but sweeps of the same format on the same architecture.
    """
    for lender in lenders_of(device, profiles, precision):
        if only_same_architecture and not _is_same_architecture(device, lender, precision):
            continue
        found = _from_lender(lender, roofline, only_grids=only_same_architecture)
        if found is not None:
            level = _level(device, profiles_of(device, profiles), lender, precision)
            return replace(found, level=level)
    return None


def _from_lender(lender: Lender, roofline: Roofline, *, only_grids: bool) -> Borrowed | None:
    bandwidth = lender.device.memory_bandwidth_bytes_per_second
    theirs = datasheet_roofline(lender.device, lender.precision, bytes_per_second=bandwidth)
    if not theirs.flops_per_second or not roofline.flops_per_second:
        return None
    dtypes = measured_formats(lender.device, lender.precision)
    stacks = stacks_of(lender.profiles, dtypes=dtypes, phase=Phase.FORWARD)
    grids = [one for one in (grid(stack, theirs) for stack in stacks) if one is not None]
    if grids:
        return _from_grids(grids, lender, roofline)
    if only_grids:
        return None
    for is_burst in (False, True):
        rows = together([stack for stack in stacks if stack.is_burst is is_burst])
        if len(rows.seconds) >= LEAST_SCATTERED:
            return _from_line(rows, lender, theirs, roofline)
    return None


def _from_grids(grids: Sequence[Grid], lender: Lender, roofline: Roofline) -> Borrowed:
    surface = surface_through(grids, roofline)
    return Borrowed(
        base=surface,
        best_flops_per_second=best_rate(surface),
        grids=tuple(grids),
        is_burst=all(one.rows.is_burst for one in grids),
        relative_error=lender.relative_error,
        is_same_chip=lender.is_same_chip,
    )


def _from_line(rows: Stack, lender: Lender, theirs: Roofline, roofline: Roofline) -> Borrowed:
    """Return start + FLOP / rate + bytes / bandwidth of the lender, at the device's rate and bandwidth."""
    moved_theirs = theirs.element_bytes / theirs.bytes_per_second
    line = fitted_line(rows).scaled(
        per_flop=theirs.flops_per_second / roofline.flops_per_second,
        per_element=roofline.element_bytes / roofline.bytes_per_second / moved_theirs,
    )
    return Borrowed(
        base=line.seconds,
        best_flops_per_second=1.0 / line.seconds_per_flop,
        grids=(),
        is_burst=rows.is_burst,
        relative_error=lender.relative_error,
        is_same_chip=lender.is_same_chip,
    )


def _is_same_architecture(device: Device, lender: Lender, precision: Precision) -> bool:
    is_other = lender.device.name != device.name
    near = _closeness(device, lender.device) <= Closeness.SAME_ARCHITECTURE
    return is_other and near and lender.precision is precision


def slowness_of(device: Device, own: Sequence[Profile], lender: Lender, precision: Precision) -> float:
    """Return how many times as long as on a lender something takes that is bound by its peak."""
    here, there = datasheet_peak(device, precision), datasheet_peak(lender.device, lender.precision)
    level = _level(device, own, lender, precision)
    return (there / here if here and there else 1.0) * (1.0 if level is None else level)


def _level(device: Device, own: Sequence[Profile], lender: Lender, precision: Precision) -> float | None:
    """Return the lender's share of peak at its best shape over the device's; None where one is unknown.

    The best shape of one search, run on many devices, shows which ones power or clock hold back, and
    which exceed the rate of the datasheet.
    """
    # Tensor cores share a clock; what runs without them may lie elsewhere.
    others = () if precision is Precision.FP32 else WIDE
    for here, there in ((precision, lender.precision), *((wide, wide) for wide in others)):
        ours = _best_share(device, own, here)
        theirs = _best_share(lender.device, lender.profiles, there)
        if ours and theirs:
            return theirs / ours
    return None


def _best_share(device: Device, profiles: Sequence[Profile], precision: Precision) -> float | None:
    peak = datasheet_peak(device, precision)
    rate = best_shape_rate(profiles, dtypes=measured_formats(device, precision))
    return rate / peak if rate and peak else None


def _closeness(device: Device, relative: Device) -> Closeness:
    near = closeness(device, relative)
    assert near is not None, (device.name, relative.name)
    return near


def _measured_devices(profiles: Iterable[Profile], *, other_than: Device) -> list[Device]:
    names = {profile.device for profile in profiles} - {other_than.name}
    return [device_by_name(name) for name in sorted(names & _known_devices())]


@cache
def _known_devices() -> frozenset[str]:
    return frozenset(device_names())
