"""Which measured formats, datasheet peaks and operand widths answer for a precision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.cluster import Device
from planner.job import Precision
from planner.units import FlopsPerSecond

MEASURED_AS: Final[Mapping[Precision, tuple[str, ...]]] = {
    Precision.FP32: ("fp32",),
    Precision.TF32: ("tf32", "fp32_or_tf32"),
    Precision.FP16: ("fp16", "bf16"),
    Precision.BF16: ("bf16", "fp16"),
    Precision.FP8: ("fp8",),
    Precision.FP8_BLOCK: ("fp8_block",),
    Precision.MXFP8: ("mxfp8",),
    Precision.NVFP4: ("nvfp4",),
}
"""Formats of rows that answer for a precision: tensor cores run bf16 and fp16 at one rate."""
PEAK_NAMES: Final[Mapping[Precision, tuple[str, ...]]] = {
    Precision.FP32: ("fp32_matrix", "fp32"),
    Precision.TF32: ("tf32", "xf32"),
    Precision.FP16: ("fp16",),
    Precision.BF16: ("bf16",),
    Precision.FP8: ("fp8",),
    Precision.FP8_BLOCK: ("fp8_block", "fp8"),
    Precision.MXFP8: ("mxfp8",),
    Precision.NVFP4: ("nvfp4",),
}
"""Names of a precision's peak in a datasheet, the most exact first."""
OPERAND_BYTES: Final[Mapping[Precision, float]] = {
    Precision.FP32: 4.0,
    Precision.TF32: 4.0,
    Precision.FP16: 2.0,
    Precision.BF16: 2.0,
    Precision.FP8: 1.0,
    Precision.FP8_BLOCK: 1.0,
    Precision.MXFP8: 1.0,
    Precision.NVFP4: 0.5,
}
"""Bytes of one operand element of a product."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StandIn:
    """Another precision whose share of its peak tells that of an unmeasured one, and how well."""

    precision: Precision
    relative_error: float
    """One standard deviation: how far the shares of peak lie apart on devices where both were measured
    (fp8 and fp8_block 14 to 32 % in the median, nvfp4 and fp8 14 to 44 %)."""


STAND_INS: Final[Mapping[Precision, tuple[StandIn, ...]]] = {
    Precision.TF32: (StandIn(precision=Precision.BF16, relative_error=0.20),),
    Precision.FP8: (StandIn(precision=Precision.FP8_BLOCK, relative_error=0.25),),
    Precision.FP8_BLOCK: (StandIn(precision=Precision.FP8, relative_error=0.25),),
    Precision.MXFP8: (
        StandIn(precision=Precision.FP8, relative_error=0.25),
        StandIn(precision=Precision.FP8_BLOCK, relative_error=0.25),
    ),
    Precision.NVFP4: (StandIn(precision=Precision.FP8, relative_error=0.35),),
}
"""Precisions that stand in where a format was not measured, the nearest first."""


def measured_formats(device: Device, precision: Precision) -> tuple[str, ...]:
    """Return the formats of rows that answer for a precision on a device.

    Others of the same rate answer only where the datasheet says that the device has the format.
    """
    return MEASURED_AS[precision] if datasheet_peak(device, precision) else MEASURED_AS[precision][:1]


def executed_precision(device: Device, precision: Precision) -> Precision:
    """Return the precision that a device runs where a job asks for one: TF32 is FP32 where it is unknown."""
    knows_tf32 = {"tf32", "xf32"} & device.peak_flops_per_second.keys()
    return Precision.FP32 if precision is Precision.TF32 and not knows_tf32 else precision


def attention_precision(precision: Precision) -> Precision:
    """Return the format that the attention core runs in: eight bits and fewer are for products alone."""
    return Precision.BF16 if OPERAND_BYTES[precision] < OPERAND_BYTES[Precision.BF16] else precision


def datasheet_peak(device: Device, precision: Precision) -> FlopsPerSecond | None:
    """Return the dense peak of a precision, or None where the datasheet has none."""
    peaks = device.peak_flops_per_second
    return next((peaks[name] for name in PEAK_NAMES[precision] if name in peaks), None)
