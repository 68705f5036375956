"""Which measured formats, datasheet peaks and operand widths answer for a precision."""

from collections.abc import Mapping
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
    Precision.FP32: ("fp32",),
    Precision.TF32: ("tf32", "fp32"),
    Precision.FP16: ("fp16",),
    Precision.BF16: ("bf16",),
    Precision.FP8: ("fp8",),
    Precision.FP8_BLOCK: ("fp8_block", "fp8"),
    Precision.MXFP8: ("mxfp8", "fp8"),
    Precision.NVFP4: ("nvfp4", "fp4"),
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


def measured_formats(device: Device, precision: Precision) -> tuple[str, ...]:
    """Return the formats of rows that answer for a precision on a device.

    Others of the same rate answer only where the datasheet says that the device has the format.
    """
    return MEASURED_AS[precision] if datasheet_peak(device, precision) else MEASURED_AS[precision][:1]


def attention_precision(precision: Precision) -> Precision:
    """Return the format that the attention core runs in: eight bits and fewer are for products alone."""
    return Precision.BF16 if OPERAND_BYTES[precision] < OPERAND_BYTES[Precision.BF16] else precision


def datasheet_peak(device: Device, precision: Precision) -> FlopsPerSecond | None:
    """Return the dense peak of a precision, or None where the datasheet has none."""
    peaks = device.peak_flops_per_second
    return next((peaks[name] for name in PEAK_NAMES[precision] if name in peaks), None)
