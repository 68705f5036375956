"""The full form of a plan on the wire: mesh, batch, schedule, sharding, and the layers of every stage."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.choices import (
    BatchDocument,
    OffloadDocument,
    RecomputeDocument,
    ScheduleDocument,
    ShardingDocument,
)
from api.schemas.document import (
    EXPERIMENTAL,
    MAX_LAYERS,
    DeviceCount,
    DeviceIndex,
    InputDocument,
    LayerCount,
    LayerIndex,
    Name,
    Number,
)
from api.schemas.mesh import MeshDocument
from planner.strategy import Chunk, DeviceRange, LayerRange, Stage, StagePlacement, TrainingPlan

MAX_PLACED_LAYERS = 2 * MAX_LAYERS
"""Of all kinds together."""
BatchShare = Annotated[float, Number, Field(gt=0, le=1, allow_inf_nan=False)]


class LayerRangeDocument(InputDocument):
    """``count`` layers of a kind, from ``first`` within the kind, that share one strategy."""

    kind: Name = Field(description="The role of the layers: embedding, encoder, decoder, norm, head, …")
    first: LayerIndex
    count: LayerCount
    recompute: RecomputeDocument = RecomputeDocument()
    offload: OffloadDocument = Field(default=OffloadDocument(), json_schema_extra=EXPERIMENTAL)
    mesh: MeshDocument | None = Field(
        default=None,
        description="Their own degrees over the same devices; null: those of the plan.",
        json_schema_extra=EXPERIMENTAL,
    )
    sharding: ShardingDocument | None = Field(
        default=None,
        description="Their own sharding; null: that of the plan.",
        json_schema_extra=EXPERIMENTAL,
    )
    of: Name | None = Field(
        default=None,
        description='The model that they belong to: "reference" for a frozen second model.',
        json_schema_extra=EXPERIMENTAL,
    )

    @classmethod
    def from_layers(cls, layers: LayerRange) -> Self:
        """Return the document of some layers."""
        return cls(
            kind=layers.kind,
            first=layers.first,
            count=layers.count,
            recompute=RecomputeDocument.from_recompute(layers.recompute),
            offload=OffloadDocument.from_offload(layers.offload),
            mesh=None if layers.mesh is None else MeshDocument.from_mesh(layers.mesh),
            sharding=None if layers.sharding is None else ShardingDocument.from_sharding(layers.sharding),
            of=layers.of,
        )

    def to_layers(self) -> LayerRange:
        """Return the layers that the document says."""
        return LayerRange(
            kind=self.kind,
            first=self.first,
            count=self.count,
            recompute=self.recompute.to_recompute(),
            offload=self.offload.to_offload(),
            mesh=None if self.mesh is None else self.mesh.to_mesh(),
            sharding=None if self.sharding is None else self.sharding.to_sharding(),
            of=self.of,
        )


class ChunkDocument(InputDocument):
    """The layers that the devices of a stage run in one pass, in execution order."""

    virtual_stage: LayerIndex
    layers: tuple[LayerRangeDocument, ...]

    @classmethod
    def from_chunk(cls, chunk: Chunk) -> Self:
        """Return the document of a chunk."""
        return cls(
            virtual_stage=chunk.virtual_stage, layers=tuple(map(LayerRangeDocument.from_layers, chunk.layers))
        )

    def to_chunk(self) -> Chunk:
        """Return the chunk that the document says."""
        return Chunk(
            virtual_stage=self.virtual_stage, layers=tuple(layers.to_layers() for layers in self.layers)
        )


class DeviceRangeDocument(InputDocument):
    """Devices ``first``, ``first + stride``, … of a node group, numbered node by node."""

    first: DeviceIndex
    count: DeviceCount
    stride: DeviceCount = 1

    @classmethod
    def from_range(cls, devices: DeviceRange) -> Self:
        """Return the document of a range."""
        return cls(first=devices.first, count=devices.count, stride=devices.stride)

    def to_range(self) -> DeviceRange:
        """Return the range that the document says."""
        return DeviceRange(first=self.first, count=self.count, stride=self.stride)


class PlacementDocument(InputDocument):
    """Where a stage, or a part of it, runs."""

    node_group: Name
    devices: Annotated[tuple[DeviceRangeDocument, ...], Field(min_length=1)]
    data_parallel: DeviceCount
    tensor_parallel: DeviceCount
    context_parallel: DeviceCount = 1
    batch_share: BatchShare = Field(default=1.0, description="Share of the samples that this part computes.")

    @classmethod
    def from_placement(cls, placement: StagePlacement) -> Self:
        """Return the document of a placement."""
        return cls(
            node_group=placement.node_group,
            devices=tuple(map(DeviceRangeDocument.from_range, placement.devices)),
            data_parallel=placement.data_parallel,
            tensor_parallel=placement.tensor_parallel,
            context_parallel=placement.context_parallel,
            batch_share=placement.batch_share,
        )

    def to_placement(self) -> StagePlacement:
        """Return the placement that the document says."""
        return StagePlacement(
            node_group=self.node_group,
            devices=tuple(devices.to_range() for devices in self.devices),
            data_parallel=self.data_parallel,
            tensor_parallel=self.tensor_parallel,
            context_parallel=self.context_parallel,
            batch_share=self.batch_share,
        )


class StageDocument(InputDocument):
    """One pipeline stage: its devices and its chunks."""

    stage: DeviceIndex
    placement: tuple[PlacementDocument, ...]
    chunks: Annotated[tuple[ChunkDocument, ...], Field(min_length=1)]

    @classmethod
    def from_stage(cls, stage: Stage) -> Self:
        """Return the document of a stage."""
        return cls(
            stage=stage.stage,
            placement=tuple(map(PlacementDocument.from_placement, stage.placement)),
            chunks=tuple(map(ChunkDocument.from_chunk, stage.chunks)),
        )

    def to_stage(self) -> Stage:
        """Return the stage that the document says."""
        return Stage(
            stage=self.stage,
            placement=tuple(placement.to_placement() for placement in self.placement),
            chunks=tuple(chunk.to_chunk() for chunk in self.chunks),
        )


class PlanDocument(InputDocument):
    """A whole plan in its full form, as every result gives it."""

    mesh: MeshDocument
    batch: BatchDocument
    schedule: ScheduleDocument = ScheduleDocument()
    sharding: ShardingDocument = ShardingDocument()
    stages: Annotated[tuple[StageDocument, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _stages_are_complete(self) -> Self:
        """Refuse stages that are not numbered 0, 1, … in order, one for each of the mesh."""
        numbers = [stage.stage for stage in self.stages]
        if numbers != list(range(self.mesh.pipeline_parallel)):
            raise PydanticCustomError(
                "stages",
                "should number the stages of pipeline_parallel {expected} from 0, in order; has {given}",
                {"expected": self.mesh.pipeline_parallel, "given": str(numbers[:20]), "field": "stages"},
            )
        return self

    @model_validator(mode="after")
    def _layers_can_be_counted(self) -> Self:
        """Refuse more layers than any model has, however few entries say so."""
        layers = [layers.count for stage in self.stages for chunk in stage.chunks for layers in chunk.layers]
        if sum(layers) > MAX_PLACED_LAYERS:
            raise PydanticCustomError(
                "stages",
                "should have {most} layers at the most, has {given}",
                {"most": MAX_PLACED_LAYERS, "given": sum(layers), "field": "stages"},
            )
        return self

    @classmethod
    def from_plan(cls, plan: TrainingPlan) -> Self:
        """Return the document of a plan."""
        return cls(
            mesh=MeshDocument.from_mesh(plan.mesh),
            batch=BatchDocument.from_batch(plan.batch),
            schedule=ScheduleDocument.from_schedule(plan.schedule),
            sharding=ShardingDocument.from_sharding(plan.sharding),
            stages=tuple(map(StageDocument.from_stage, plan.stages)),
        )

    def to_plan(self) -> TrainingPlan:
        """Return the plan that the document says."""
        return TrainingPlan(
            mesh=self.mesh.to_mesh(),
            batch=self.batch.to_batch(),
            schedule=self.schedule.to_schedule(),
            sharding=self.sharding.to_sharding(),
            stages=tuple(stage.to_stage() for stage in self.stages),
        )
