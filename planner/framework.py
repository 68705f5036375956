"""The traits of a training framework: what it overlaps, keeps, supports and refuses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Self

from planner.footprint import PLAIN, Footprint
from planner.job import AttentionKind, Job, Precision
from planner.limits import Limits
from planner.pace import AS_MEASURED, ProgramPace
from planner.strategy import Recompute, RecomputeMode, ScheduleName, ZeroStage
from planner.wire import WireChoice
from planner.workload.keeping import FUSED, Keeping


class Grain(StrEnum):
    """The part of a job for which a decision is made once."""

    JOB = "job"
    CHUNK = "chunk"
    LAYER = "layer"


FP32_BYTES: Final = 4
NARROW_BYTES: Final[Mapping[Precision, float]] = {
    Precision.FP8: 1.0,
    Precision.FP8_BLOCK: 1.0,
    Precision.MXFP8: 1.0,
    Precision.NVFP4: 0.5,
}
"""Bytes of an operand, without its scales, in precisions whose products read less than they are given."""

NO_RECOMPUTE: Final = Recompute()
SELECTIVE_RECOMPUTE: Final = Recompute(mode=RecomputeMode.SELECTIVE, modules=("core_attention",))
FULL_RECOMPUTE: Final = Recompute(mode=RecomputeMode.FULL)


class ChosenFormat(StrEnum):
    """A number format that a framework may let a job choose, by the job's word for it."""

    GRADIENT = "gradient_dtype"
    MASTER_WEIGHT = "master_weight_dtype"
    MOMENTS = "optimizer_state_dtype"


@dataclass(frozen=True, kw_only=True, slots=True)
class StateFormats:
    """The number formats that a job asks for; None as the framework does."""

    gradient: Precision | None = None
    master_weight: Precision | None = None
    moments: Precision | None = None

    @classmethod
    def of(cls, job: Job) -> Self:
        """Return what a job asks for."""
        return cls(
            gradient=job.gradient_dtype,
            master_weight=job.master_weight_dtype,
            moments=job.optimizer_state_dtype,
        )


AS_THE_FRAMEWORK_DOES: Final = StateFormats()


@dataclass(frozen=True, kw_only=True, slots=True)
class StateWidths:
    """Bytes per parameter of each state, before sharding.

    ``parameter`` is what rests on the device, ``compute`` the width that matrix products read and
    that gathers move, ``gradient`` the accumulated and reduced gradient, ``held_gradient`` all that
    is kept of it (some keep the low-precision one besides), ``optimizer`` the master
    weight (``master``, where it isn't the parameter itself) and the moments, ``moment`` one of those.
    """

    parameter: float
    compute: float
    gradient: float
    held_gradient: float
    optimizer: float
    master: float = 0
    moment: float = FP32_BYTES

    def with_moments(self, bytes_per_parameter: float) -> Self:
        """Return the widths with so many bytes of moments per parameter."""
        return replace(self, optimizer=self.master + bytes_per_parameter)

    def accumulating(self, choice: WireChoice | None) -> Self:
        """Return the widths where gradients are added up in what they are reduced in, if they are."""
        if choice is None or not choice.accumulates:
            return self
        width = choice.format.bytes_per_value
        return replace(self, gradient=width, held_gradient=self.held_gradient - self.gradient + width)


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """The traits of one framework.

    ``keeps_master_weights`` tells frameworks that hold a low-precision parameter beside an fp32
    master from those whose parameter is the fp32 master itself. ``gradient_bytes`` is the width of
    accumulated gradients by precision, 4 where none is named.
    """

    name: str
    description: str
    schedules: tuple[ScheduleName, ...]
    zero_stages: tuple[ZeroStage, ...]
    recompute: tuple[Recompute, ...]
    recompute_grain: Grain
    gradient_bytes: Mapping[Precision, int]
    keeps_master_weights: bool
    vocabulary_multiple: int
    default_zero_stage: ZeroStage
    uneven_by_default: bool
    """Whether layers that do not divide evenly are spread without being told how."""
    empty_ends: bool
    """Whether a stage may hold the embedding or the head and no decoder layer."""
    weighs_layers: bool = False
    """Whether stages are filled by the weights of their layers and of the head where not told how."""
    pace: ProgramPace = AS_MEASURED
    splits_vocabulary: bool = True
    """Whether tensor parallelism splits the embedding and the head."""
    saves_gathered_inputs: bool = False
    """Whether sequence-parallel products keep their gathered input for backward, not their shard of it."""
    keeps_whole_embedding_gradients: bool = False
    """Whether every tensor-parallel rank keeps the gradient of the whole embedding, unless it is sharded.

    DTensor makes it whole, and what it hands on is a view of the rank's rows.
    """
    keeps_low_gradients: bool = False
    """Whether gradients in the precision of compute stay beside the accumulated ones."""
    kept: Keeping = FUSED
    """What its kernels keep for backward beside the least."""
    keeps_narrow_inputs: bool = False
    """Whether products of eight-bit and narrower operands keep their inputs as they read them."""
    footprint: Footprint = PLAIN
    scatters_transfers: bool = False
    """Whether each tensor-parallel rank sends its share of an activation, gathered again on arrival."""
    tensor_parallel: bool = True
    pipeline_parallel: bool = True
    context_parallel: bool = True
    limits: Limits = field(default_factory=Limits)
    version: str = ""
    """The release whose rules these are; empty where it has no releases."""
    versions: tuple[str, ...] = ()
    """The releases whose rules are known, oldest first."""
    pipeline_zero_stages: tuple[ZeroStage, ...] = tuple(ZeroStage)
    """ZeRO stages that the framework allows beside a pipeline."""
    refused_precisions: tuple[Precision, ...] = ()
    chosen_formats: tuple[ChosenFormat, ...] = ()
    """The formats of states that a job may choose."""
    compiled_as: str | None = None
    """The parameters that hold beside its own where a job has its layers compiled; None where none can."""
    always_compiled: bool = False
    adapters: bool = True
    """Whether it, or PEFT over it, trains low-rank adapters."""
    quantized_bases: bool = False
    """Whether the frozen weights under adapters may rest quantized."""
    shards_quantized: bool = True
    """Whether quantized weights are sharded with the other parameters."""
    copies_shards: bool = False
    """Whether groups that share parameters keep a copy for backward of what all replicas share (ZeRO++)."""
    unfused_precisions: tuple[Precision, ...] = ()
    """Precisions in which attention runs unfused where the job doesn't say."""
    skips_beside_sinks: bool = True
    """Whether fused attention leaves out what mask and window hide where its softmax has a learnt sink."""
    default_sequence_parallel: bool = False
    host_update_pace: float = 1.0
    """Time of its optimizer on the host over that of DeepSpeed's CPU-Adam."""
    updates_host_beside_copies: bool = False
    """Whether gradients come down and parameters go up while other parameters are updated there."""
    overlaps_gradient_reduction: bool = True
    overlaps_whole_reduction: bool = False
    """Whether replicas that share nothing average gradients beside backward, though sharded ones wait."""
    overlaps_parameter_gather: bool = True
    hides_tensor_parallel_backward: bool = True
    overlaps_transfers: tuple[ScheduleName, ...] = (
        ScheduleName.INTERLEAVED,
        ScheduleName.BREADTH_FIRST,
        ScheduleName.ZB_H1,
        ScheduleName.ZB_V,
        ScheduleName.DUALPIPE_V,
    )
    """Schedules whose sends run beside the next pass; in the others a send occupies its stage."""
    keeps_graph_for_weights: bool = False
    """Whether all that forward saved stays until gradients of weights, where they are passes of their own."""

    @property
    def splits_backward(self) -> bool:
        """Whether it has a schedule whose gradients of weights are passes of their own."""
        return any(schedule.splits_backward for schedule in self.schedules)

    def widths(
        self, precision: Precision, *, moment_values: float, formats: StateFormats = AS_THE_FRAMEWORK_DOES
    ) -> StateWidths:
        """Return the bytes per parameter of each state with an optimizer of so many moments.

        Formats that the framework does not let one choose are as it does. Where the parameter is its own
        master, gradient and moments are as wide as it, as PyTorch makes them.
        """
        asked = self.allowed(formats)
        compute = precision.activation_bytes
        wanted = FP32_BYTES if asked.master_weight is None else asked.master_weight.stored_bytes
        parameter = compute if self.keeps_master_weights else wanted
        master = wanted if self.keeps_master_weights and wanted != parameter else 0
        own = FP32_BYTES if self.keeps_master_weights else parameter
        gradient = self.gradient_bytes.get(precision, own)
        if asked.gradient is not None:
            gradient = asked.gradient.stored_bytes
        moment = own if asked.moments is None else asked.moments.stored_bytes
        return StateWidths(
            parameter=parameter,
            compute=compute,
            gradient=gradient,
            held_gradient=gradient + (compute if self.keeps_low_gradients and compute < gradient else 0),
            optimizer=master + moment * moment_values,
            master=master,
            moment=moment,
        )

    def allowed(self, formats: StateFormats) -> StateFormats:
        """Return those formats that the framework lets a job choose."""
        return StateFormats(
            gradient=formats.gradient if ChosenFormat.GRADIENT in self.chosen_formats else None,
            master_weight=(
                formats.master_weight if ChosenFormat.MASTER_WEIGHT in self.chosen_formats else None
            ),
            moments=formats.moments if ChosenFormat.MOMENTS in self.chosen_formats else None,
        )

    def ignored_formats(self, formats: StateFormats) -> tuple[ChosenFormat, ...]:
        """Return the formats that a job asks for in vain."""
        asked = {
            ChosenFormat.GRADIENT: formats.gradient,
            ChosenFormat.MASTER_WEIGHT: formats.master_weight,
            ChosenFormat.MOMENTS: formats.moments,
        }
        return tuple(word for word, value in asked.items() if value and word not in self.chosen_formats)

    def keeping(self, precision: Precision) -> Keeping:
        """Return what its kernels keep for backward at a precision."""
        if self.keeps_narrow_inputs and precision in NARROW_BYTES:
            return replace(self.kept, product_input_bytes=NARROW_BYTES[precision])
        return self.kept

    def default_attention(self, precision: Precision) -> AttentionKind:
        """Return how attention runs where the job doesn't say."""
        return AttentionKind.UNFUSED if precision in self.unfused_precisions else AttentionKind.FLASH

    def reduction_overlaps(self, zero_stage: ZeroStage) -> bool:
        """Whether gradients are reduced beside the last backward pass."""
        is_whole = zero_stage is ZeroStage.NONE
        return self.overlaps_gradient_reduction or (is_whole and self.overlaps_whole_reduction)

    def transfer_blocks(self, schedule: ScheduleName) -> bool:
        """Whether a send to the next stage occupies the sender."""
        return schedule not in self.overlaps_transfers
