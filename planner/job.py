"""What is to be trained: batch, sequence, precision, optimizer, framework, objective, constraints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from planner.optimizers import OPTIMIZERS, Optimizer


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

    @property
    def stored_bytes(self) -> int:
        """Bytes of one element of a gradient, a master weight or a moment kept in this format."""
        return self.activation_bytes if self in {Precision.FP32, Precision.TF32, *HALVES} else 1


HALVES: Final = frozenset({Precision.FP16, Precision.BF16})
"""The formats of two bytes."""


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


class TrainableKind(StrEnum):
    """What is trained: the layers themselves, or low-rank adapters beside their products."""

    FULL = "full"
    LORA = "lora"


class BaseFormat(StrEnum):
    """How the frozen products under adapters rest in memory."""

    NF4 = "nf4"
    INT8 = "int8"
    BF16 = "bf16"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainable:
    """Which parameters are trained.

    ``frozen`` names kinds of layers that stay as they are. With adapters everything else does too:
    each product that ``targets`` names (None: every one of attention, MLP, experts and mixers) gets one of
    ``rank``, and rests in ``base_format`` (None: the format of compute).
    """

    kind: TrainableKind = TrainableKind.FULL
    frozen: tuple[str, ...] = ()
    rank: int = 16
    targets: tuple[str, ...] | None = None
    base_format: BaseFormat | None = None

    @property
    def has_adapters(self) -> bool:
        """Whether adapters are trained in place of the layers."""
        return self.kind is TrainableKind.LORA

    @property
    def rests_narrow(self) -> bool:
        """Whether what is not trained rests in fewer bits than products read."""
        return self.base_format in {BaseFormat.NF4, BaseFormat.INT8}


class Loss(StrEnum):
    """What is minimised. All but DPO are the loss of the model's own head."""

    CAUSAL_LM = "causal_lm"
    MASKED_LM = "masked_lm"
    SEQ2SEQ_LM = "seq2seq_lm"
    CLASSIFICATION = "classification"
    DPO = "dpo"


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
    compiled: bool = False
    """Whether layers run compiled where the framework leaves that to the job: torch.compile, CUDA graphs."""
    trainable: Trainable = Trainable()
    loss: Loss = Loss.CAUSAL_LM
    expert_imbalance: float = 1.0

    @property
    def sequences_per_sample(self) -> int:
        """Two where a sample is a pair, of a chosen and a rejected sequence."""
        return 2 if self.loss is Loss.DPO else 1


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
