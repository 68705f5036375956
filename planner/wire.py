"""The number formats in which replicas send each other parameters and gradients.

Sources: Wang et al., "ZeRO++" (2023), for quantized gathers (qwZ) and reductions (qgZ); the parsers and
engines of the frameworks in the releases that `planner.frameworks` names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from planner.job import Precision
from planner.strategy import Sharding, ZeroStage

SCALED_VALUES: Final = 4096
"""Values that share a scale: DeepSpeed quantizes weights by 4,000 to 8,000, gradients row by row."""
SCALE_BYTES: Final = 4
"""A scale is FP32."""


class WireFormat(StrEnum):
    """The format of what is sent."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def is_scaled(self) -> bool:
        """Whether blocks of values have scales of their own, which are sent beside them."""
        return self in {WireFormat.INT8, WireFormat.INT4}

    @property
    def bytes_per_value(self) -> float:
        """Bytes that one value takes on its way, its part of a scale with it."""
        scale = SCALE_BYTES / SCALED_VALUES if self.is_scaled else 0.0
        return _VALUE_BYTES[self] + scale


_VALUE_BYTES: Final = {
    WireFormat.FP32: 4.0,
    WireFormat.FP16: 2.0,
    WireFormat.BF16: 2.0,
    WireFormat.FP8: 1.0,
    WireFormat.INT8: 1.0,
    WireFormat.INT4: 0.5,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WireChoice:
    """A format that a framework may be told to send in, ``words`` its own for that, and where it then does.

    Nothing but the framework's default is sent where no choice says so.
    """

    format: WireFormat
    words: str
    zero_stages: tuple[ZeroStage, ...]
    precisions: tuple[Precision, ...] = tuple(Precision)
    """The job's precisions beside which it goes."""
    accumulates: bool = False
    """Whether gradients are added up in the format, too: what is reduced is where they rest."""
    exchanges: bool = False
    """Whether a reduction is two exchanges, within nodes and between them, each of sums quantized anew (qgZ).

    It then takes every rank of the job, on several whole nodes.
    """
    through_fp16: bool = False
    """Whether the kernels that quantize read and write FP16 alone, so that anything else is copied."""

    def holds(self, sharding: Sharding, precision: Precision) -> bool:
        """Whether the framework sends so under a sharding, at a precision."""
        return sharding.zero_stage in self.zero_stages and precision in self.precisions


WireChoices = Sequence[WireChoice]


def chosen(
    choices: WireChoices, dtype: str | None, sharding: Sharding, precision: Precision
) -> WireChoice | None:
    """Return the choice that a plan makes by its name of a format; None for the framework's default."""
    if dtype is None:
        return None
    return next((each for each in choices if each.format == dtype and each.holds(sharding, precision)), None)


def plain_format(width: float, precision: Precision) -> WireFormat:
    """Return the format of values of so many bytes at a precision: FP16 jobs have no BF16."""
    if width > _VALUE_BYTES[WireFormat.FP16]:
        return WireFormat.FP32
    return WireFormat.FP16 if precision is Precision.FP16 else WireFormat.BF16
