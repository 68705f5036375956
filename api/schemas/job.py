"""The training job on the wire: batch, sequence, precision, optimizer, framework, what is trained."""

from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.document import (
    EXPERIMENTAL,
    Flag,
    InputDocument,
    Name,
    Number,
    SampleCount,
    Share,
    TokenCount,
    WholeNumber,
    one_of,
    refuse_text,
)
from planner.errors import InvalidRequest
from planner.job import (
    ATTENTION_ALIASES,
    AttentionKind,
    BaseFormat,
    Job,
    Loss,
    Precision,
    Trainable,
    TrainableKind,
)
from planner.names import nearest_names
from planner.optimizers import OPTIMIZER_ALIASES, OPTIMIZERS
from planner.programs import traits_of
from planner.workload.layers import Workload
from planner.workload.presets import preset_workload
from planner.workload.samples import has_sequence, with_samples

KnownPrecision = Annotated[Precision, one_of(Precision)]
KnownOptimizer = Annotated[
    str,
    one_of(OPTIMIZERS),
    BeforeValidator(lambda name: OPTIMIZER_ALIASES.get(name, name) if isinstance(name, str) else name),
    Field(json_schema_extra={"enum": list(OPTIMIZERS)}),
]
KnownAttention = Annotated[
    AttentionKind,
    one_of(AttentionKind),
    BeforeValidator(lambda name: ATTENTION_ALIASES.get(name, name) if isinstance(name, str) else name),
]
Imbalance = Annotated[float, Number, Field(ge=1, le=1e6, allow_inf_nan=False)]
Pixels = Annotated[int, WholeNumber, Field(ge=1, le=10**6)]
ImageCount = Annotated[int, WholeNumber, Field(ge=0, le=10**6)]
LoraRank = Annotated[int, WholeNumber, Field(ge=1, le=10**6)]
KnownTrainable = Annotated[TrainableKind, one_of(TrainableKind)]
KnownBaseFormat = Annotated[BaseFormat, one_of(BaseFormat)]
KnownLoss = Annotated[Loss, one_of(Loss)]
DEFAULT_TRAINABLE: Final = Trainable()
MAX_NAMES: Final = 100
"""Kinds of layers, or names of products, that a list may hold."""


class TrainableDocument(InputDocument):
    """Which parameters are trained: all but the frozen kinds of layers, or low-rank adapters."""

    kind: KnownTrainable = Field(default=TrainableKind.FULL, description="full or lora.")
    frozen: tuple[Name, ...] = Field(
        default=(),
        max_length=MAX_NAMES,
        description="Kinds of layers that stay as they are; with lora: that get no adapters.",
    )
    rank: LoraRank | None = Field(
        default=None, description=f"Of the adapters; null: {DEFAULT_TRAINABLE.rank}, with lora."
    )
    targets: tuple[Name, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_NAMES,
        description="Products that get adapters, as PEFT and Megatron name them (q_proj, linear_qkv); null: "
        "every one of attention, MLP, experts and mixers.",
    )
    base_dtype: KnownBaseFormat | None = Field(
        default=None, description="How the products under adapters rest in memory; null: as they compute."
    )

    @model_validator(mode="before")
    @classmethod
    def _is_more_than_a_kind(cls, value: object) -> object:
        """Refuse the kind alone, with the object that has it."""
        return refuse_text(
            value, meant=lambda text: [{"kind": str(kind)} for kind in nearest_names(text, TrainableKind)]
        )

    @model_validator(mode="after")
    def _adapters_are_lora(self) -> Self:
        """Refuse the fields of adapters beside another kind."""
        for field in ("rank", "targets", "base_dtype"):
            if self.kind is not TrainableKind.LORA and getattr(self, field) is not None:
                raise PydanticCustomError("trainable", 'goes with kind "lora" only', {"field": field})
        return self

    def filled(self) -> dict[str, Any]:
        """Return plain data with the rank that adapters have."""
        rank = self.to_trainable().rank if self.kind is TrainableKind.LORA else None
        return self.model_dump(mode="json") | {"rank": rank}

    def to_trainable(self) -> Trainable:
        """Return what the document says is trained."""
        return Trainable(
            kind=self.kind,
            frozen=self.frozen,
            rank=DEFAULT_TRAINABLE.rank if self.rank is None else self.rank,
            targets=self.targets,
            base_format=self.base_dtype,
        )


class JobDocument(InputDocument):
    """One training job; null for a number format means: as the framework does."""

    global_batch_size: SampleCount = Field(description="Samples per optimizer step, over all devices.")
    sequence_length: TokenCount | None = Field(
        default=None, description="Tokens of one sample; null for a model without a sequence."
    )
    decoder_sequence_length: TokenCount | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    precision: KnownPrecision = Precision.BF16
    optimizer: KnownOptimizer = "adamw"
    framework: Name = Field(default="megatron-core", description="One of /v1/frameworks, or any.")
    framework_version: Name | None = None
    gradient_dtype: KnownPrecision | None = None
    master_weight_dtype: KnownPrecision | None = None
    optimizer_state_dtype: KnownPrecision | None = None
    attention: KnownAttention | None = Field(
        default=None,
        description="flash (one fused kernel) or unfused (matrix products around a softmax). Null: as the "
        "framework does, which is flash, but unfused in fp16 under Megatron-LM.",
    )
    compile: Flag | None = Field(
        default=None,
        description="Layers run compiled: torch.compile in PyTorch's frameworks, CUDA graphs in Megatron's. "
        "Null: as the framework does, which compiles in MaxText alone.",
        json_schema_extra=EXPERIMENTAL,
    )
    trainable: TrainableDocument = TrainableDocument()
    loss: KnownLoss = Field(
        default=Loss.CAUSAL_LM,
        description="That of the model's own head, or dpo: pairs of sequences (chosen, rejected) against a "
        "frozen reference model.",
    )
    reference_model: Name | None = Field(
        default=None, description="Preset of the reference model of dpo; null: the same model."
    )
    images_per_sample: ImageCount = Field(default=0, json_schema_extra=EXPERIMENTAL)
    image_size: Pixels | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    sequence_lengths: tuple[tuple[TokenCount, Share], ...] | None = Field(
        default=None,
        description="Distribution of true lengths: tokens and share.",
        json_schema_extra=EXPERIMENTAL,
    )
    expert_imbalance: Imbalance = Field(
        default=1.0,
        description="Load of the busiest expert rank over the mean.",
        json_schema_extra=EXPERIMENTAL,
    )

    def attention_or_default(self) -> AttentionKind:
        """Return how attention runs; UnknownName for a framework that nobody knows."""
        return self.attention or self.default_attention()

    def default_attention(self) -> AttentionKind:
        """Return how attention runs where the job doesn't say; UnknownName for an unknown framework."""
        return traits_of(self.framework, self.framework_version).default_attention(self.precision)

    def with_samples(self, workload: Workload) -> Workload:
        """Return the model on samples of as many images and as long a decoder's sequence as the job says.

        A model that sees nothing but images has one per sample where the job names none.
        """
        images = self.images_per_sample or (0 if has_sequence(workload) else 1)
        return with_samples(
            workload,
            images=images,
            image_size=self.image_size,
            target_length=self.decoder_sequence_length,
        )

    def to_reference(self) -> Workload | None:
        """Return a reference model that is not the model itself; InvalidRequest where none can be."""
        if self.reference_model is None:
            return None
        if self.loss is not Loss.DPO:
            raise InvalidRequest(
                f"a loss of {self.loss} has no reference model",
                pointer="/job/reference_model",
                nearest_legal=(None,),
            )
        return self.with_samples(preset_workload(self.reference_model, pointer="/job/reference_model"))

    def to_job(self, workload: Workload) -> Job:
        """Return the job that the document says; InvalidRequest where the model needs a sequence length."""
        if self.sequence_length is None and has_sequence(workload):
            default = workload.default_sequence_length
            raise InvalidRequest(
                f"{workload.name} is trained on sequences: say how long",
                pointer="/job/sequence_length",
                nearest_legal=() if default is None else (default,),
            )
        return Job(
            global_batch_size=self.global_batch_size,
            sequence_length=self.sequence_length if has_sequence(workload) else None,
            precision=self.precision,
            optimizer=OPTIMIZERS[self.optimizer],
            framework=self.framework,
            framework_version=self.framework_version,
            gradient_dtype=self.gradient_dtype,
            master_weight_dtype=self.master_weight_dtype,
            optimizer_state_dtype=self.optimizer_state_dtype,
            attention=self.attention_or_default(),
            compiled=bool(self.compile),
            trainable=self.trainable.to_trainable(),
            loss=self.loss,
            expert_imbalance=self.expert_imbalance,
        )
