"""What is to be trained: batch, sequence, precision, optimizer, framework, objective, constraints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from planner.units import Flops


class Precision(StrEnum):
    """The number format of the matrix products."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"

    @property
    def activation_bytes(self) -> int:
        """Bytes of one element of a saved activation and of a weight kept for compute."""
        return 4 if self in {Precision.FP32, Precision.TF32} else 2


class AttentionKind(StrEnum):
    """How the attention core runs: one fused kernel, or matrix products around a softmax."""

    FLASH = "flash"
    UNFUSED = "unfused"


ATTENTION_ALIASES: Final[Mapping[str, AttentionKind]] = {
    **dict.fromkeys(
        ("sdpa", "fused", "flash_attention", "flash_attention_2", "flash_attention_3", "cudnn"),
        AttentionKind.FLASH,
    ),
    **dict.fromkeys(("eager", "math", "plain", "standard", "vanilla", "naive"), AttentionKind.UNFUSED),
}
"""Names that frameworks and people use for either kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """An optimizer by what it keeps and computes for each trained parameter."""

    name: str
    moment_values: int
    """Values kept per parameter besides the master weight (Adam: two moments)."""
    flops_per_parameter: Flops


OPTIMIZERS: Final[Mapping[str, Optimizer]] = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer(name="sgd", moment_values=1, flops_per_parameter=4.0),
        Optimizer(name="adam", moment_values=2, flops_per_parameter=12.0),
        Optimizer(name="adamw", moment_values=2, flops_per_parameter=14.0),
    )
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainable:
    """Which parameters are trained; only full training is priced so far."""

    kind: str = "full"
    frozen: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One training job, as the request says it with the defaults filled in.

    ``None`` for a dtype means "as the framework does", for ``sequence_length`` that samples hold no
    sequence. ``expert_imbalance`` is the load of the busiest expert rank over the mean.
    """

    global_batch_size: int
    sequence_length: int | None
    precision: Precision = Precision.BF16
    optimizer: Optimizer = OPTIMIZERS["adamw"]
    framework: str = "megatron-core"
    framework_version: str | None = None
    gradient_dtype: Precision | None = None
    master_weight_dtype: Precision | None = None
    optimizer_state_dtype: Precision | None = None
    attention: AttentionKind = AttentionKind.FLASH
    trainable: Trainable = Trainable()
    expert_imbalance: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    """What the caller fixes, bounds and forbids.

    ``fixed`` and ``bounds`` are keyed by the words of the flat plan form ("tensor_parallel", ...).
    ``memory_fraction`` is the safe line as a share of the device's capacity.
    """

    fixed: Mapping[str, object] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    forbid: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    memory_fraction: float = 0.94


@dataclass(frozen=True, kw_only=True, slots=True)
class SolverLimits:
    """When a search may stop: wall clock in seconds, and the relative gap that is good enough."""

    time_limit_seconds: float = 30.0
    relative_gap: float = 0.0
