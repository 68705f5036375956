"""The choices of a plan on the wire: batch, schedule, sharding of states, recomputation, offload."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.document import (
    EXPERIMENTAL,
    DeviceCount,
    Flag,
    InputDocument,
    LayerCount,
    Name,
    SampleCount,
    Share,
    WholeNumber,
    one_of,
)
from planner.strategy import (
    Batch,
    LayerOffload,
    Offload,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Sharding,
    ZeroStage,
)

ZeroStageNumber = Annotated[int, WholeNumber, Field(ge=ZeroStage.NONE, le=ZeroStage.PARAMETERS)]
ROUNDING = 1e-9
"""What shares may add up to beyond 1, as 0.1 and its like have no exact binary form."""

LEAST_STAGE: Final = ((1, "optimizer"), (2, "gradients"), (2, "parameters"))
"""The least ZeRO stage that may split a state; some frameworks let parameters rest split with 2 already."""
KnownSchedule = Annotated[ScheduleName, one_of(ScheduleName)]
KnownRecomputeMode = Annotated[RecomputeMode, one_of(RecomputeMode)]


class BatchDocument(InputDocument):
    """Samples per forward pass of one rank, and such passes per step."""

    micro_batch_size: SampleCount
    num_micro_batches: SampleCount

    @classmethod
    def from_batch(cls, batch: Batch) -> Self:
        """Return the document of a batch."""
        return cls(micro_batch_size=batch.micro_batch_size, num_micro_batches=batch.num_micro_batches)

    def to_batch(self) -> Batch:
        """Return the batch that the document says."""
        return Batch(micro_batch_size=self.micro_batch_size, num_micro_batches=self.num_micro_batches)


class ScheduleDocument(InputDocument):
    """The order of forward and backward passes in the pipeline."""

    name: KnownSchedule = ScheduleName.ONE_FORWARD_ONE_BACKWARD
    virtual_stages: LayerCount = Field(default=1, description="Chunks of layers per stage.")
    interleave_group_size: SampleCount | None = Field(
        default=None,
        description="Micro-batches that a chunk runs before the next chunk; null: one per stage.",
    )

    @classmethod
    def from_schedule(cls, schedule: Schedule) -> Self:
        """Return the document of a schedule."""
        return cls(
            name=schedule.name,
            virtual_stages=schedule.virtual_stages,
            interleave_group_size=schedule.interleave_group_size,
        )

    def to_schedule(self) -> Schedule:
        """Return the schedule that the document says."""
        return Schedule(
            name=self.name,
            virtual_stages=self.virtual_stages,
            interleave_group_size=self.interleave_group_size,
        )


class ShardingDocument(InputDocument):
    """Sizes of the groups of nearest ranks, over data x context parallel, that share each state."""

    zero_stage: ZeroStageNumber = Field(
        default=0, description="1 shards optimizer states, 2 also gradients, 3 also parameters."
    )
    parameters: DeviceCount = 1
    gradients: DeviceCount = 1
    optimizer: DeviceCount = 1
    reshard_after_forward: Flag = True
    gather_dtype: Name | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    reduce_dtype: Name | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    experts: "ShardingDocument | None" = Field(
        default=None,
        description="The same for the parameters of experts, over the expert-data ranks.",
        json_schema_extra=EXPERIMENTAL,
    )

    @model_validator(mode="after")
    def _sizes_agree_with_the_stage(self) -> Self:
        """Refuse a state that is split although the stage says that every rank has all of it."""
        for stage, state in LEAST_STAGE:
            size = getattr(self, state)
            if size > 1 and self.zero_stage < stage:
                raise PydanticCustomError(
                    "sharding_sizes",
                    "splits {state} over {size} ranks, which zero_stage {zero_stage} keeps whole",
                    {
                        "state": state,
                        "size": size,
                        "zero_stage": self.zero_stage,
                        "stage": stage,
                        "field": state,
                    },
                )
        return self

    @classmethod
    def from_sharding(cls, sharding: Sharding) -> Self:
        """Return the document of a sharding."""
        return cls(
            zero_stage=int(sharding.zero_stage),
            parameters=sharding.parameters,
            gradients=sharding.gradients,
            optimizer=sharding.optimizer,
            reshard_after_forward=sharding.reshard_after_forward,
            gather_dtype=sharding.gather_dtype,
            reduce_dtype=sharding.reduce_dtype,
            experts=None if sharding.experts is None else cls.from_sharding(sharding.experts),
        )

    def to_sharding(self) -> Sharding:
        """Return the sharding that the document says."""
        return Sharding(
            zero_stage=ZeroStage(self.zero_stage),
            parameters=self.parameters,
            gradients=self.gradients,
            optimizer=self.optimizer,
            reshard_after_forward=self.reshard_after_forward,
            gather_dtype=self.gather_dtype,
            reduce_dtype=self.reduce_dtype,
            experts=None if self.experts is None else self.experts.to_sharding(),
        )


class RecomputeDocument(InputDocument):
    """What the backward pass computes again."""

    mode: KnownRecomputeMode = RecomputeMode.NONE
    modules: tuple[Name, ...] = Field(
        default=(),
        description="Parts of the layer, with selective only; empty: those that the framework takes.",
    )

    @model_validator(mode="after")
    def _modules_are_selected(self) -> Self:
        """Refuse modules beside a mode that does not look at them."""
        if self.modules and self.mode is not RecomputeMode.SELECTIVE:
            raise PydanticCustomError(
                "recompute_modules", 'names modules, which only mode "selective" has', {"field": "modules"}
            )
        return self

    @classmethod
    def from_recompute(cls, recompute: Recompute) -> Self:
        """Return the document of a recomputation."""
        return cls(mode=recompute.mode, modules=recompute.modules)

    def to_recompute(self) -> Recompute:
        """Return the recomputation that the document says."""
        return Recompute(mode=self.mode, modules=self.modules)


class TierSharesDocument(InputDocument):
    """Shares of one state kept off the device, by tier; the rest stays on it."""

    cpu: Share = 0.0
    nvme: Share = Field(default=0.0, json_schema_extra=EXPERIMENTAL)

    @model_validator(mode="after")
    def _no_more_than_all(self) -> Self:
        """Refuse shares that add up to more than the whole."""
        total = self.cpu + self.nvme
        if total > 1 + ROUNDING:
            raise PydanticCustomError(
                "shares", "gives away more than the whole state: {total}", {"total": total}
            )
        return self

    @classmethod
    def from_offload(cls, offload: Offload) -> Self:
        """Return the document of the shares of one state."""
        return cls(cpu=offload.cpu, nvme=offload.nvme)

    def to_offload(self) -> Offload:
        """Return the shares that the document says."""
        return Offload(cpu=self.cpu, nvme=self.nvme)


class OffloadDocument(InputDocument):
    """Shares of each state of a layer kept off the device."""

    optimizer: TierSharesDocument = TierSharesDocument()
    parameters: TierSharesDocument = TierSharesDocument()
    gradients: TierSharesDocument = TierSharesDocument()
    activations: TierSharesDocument = TierSharesDocument()

    @classmethod
    def from_offload(cls, offload: LayerOffload) -> Self:
        """Return the document of the offload of a layer."""
        return cls(
            optimizer=TierSharesDocument.from_offload(offload.optimizer),
            parameters=TierSharesDocument.from_offload(offload.parameters),
            gradients=TierSharesDocument.from_offload(offload.gradients),
            activations=TierSharesDocument.from_offload(offload.activations),
        )

    def to_offload(self) -> LayerOffload:
        """Return the offload that the document says."""
        return LayerOffload(
            optimizer=self.optimizer.to_offload(),
            parameters=self.parameters.to_offload(),
            gradients=self.gradients.to_offload(),
            activations=self.activations.to_offload(),
        )
