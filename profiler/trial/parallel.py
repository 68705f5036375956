"""The ranks of a plan as a device mesh, and a chunk cut over them: torch's DTensor, FSDP2, checkpointing."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import distributed, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from planner.strategy import RecomputeMode, ZeroStage
from planner.workload.block import BlockLayer
from planner.workload.transformer import DecoderLayer
from profiler.trial.account import Axis, ranks_of
from profiler.trial.errors import PlanCannotRun
from profiler.trial.experts import ExpertsMlp
from profiler.trial.model import Block, Chunk, Embedding, Mlp
from profiler.trial.order import PlacedLayer, TrialOrder

DATA, REPLICATE, TENSOR, PIPELINE, EXPERT = "data", "replicate", "tensor", "pipeline", "expert"
"""Names of mesh axes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialMesh:
    """The device mesh of a plan and this rank's place on it."""

    mesh: DeviceMesh
    order: TrialOrder
    experts: distributed.ProcessGroup | None = None
    """The ranks that experts are spread over: neighbours on the data axis."""
    expert_replicas: distributed.ProcessGroup | None = None
    """The ranks that have the same experts."""

    @property
    def stage(self) -> int:
        """The pipeline stage of this rank."""
        return self.mesh.get_local_rank(PIPELINE)

    @property
    def replica(self) -> int:
        """Which of the data-parallel ranks this is."""
        rank = self.mesh.get_local_rank(DATA)
        if not self.has_replicas_of_shards:
            return rank
        return self.mesh.get_local_rank(REPLICATE) * self.mesh[DATA].size() + rank

    @property
    def has_replicas_of_shards(self) -> bool:
        """Whether states are sharded over some of the data-parallel ranks, and repeated over the others."""
        return REPLICATE in (self.mesh.mesh_dim_names or ())

    @property
    def is_sharded(self) -> bool:
        """Whether gradients are sharded, and so what FSDP2 does."""
        has_shards = self.order.mesh.data_parallel > 1 or self.order.on_host
        return self.order.sharding.zero_stage >= ZeroStage.GRADIENTS and has_shards

    @property
    def frees_gathered(self) -> bool:
        """Whether what a layer gathers of its parameters is freed when its pass is over."""
        sharding = self.order.sharding
        return sharding.zero_stage is ZeroStage.PARAMETERS and sharding.reshard_after_forward

    @property
    def data_meshes(self) -> DeviceMesh:
        """The mesh that FSDP2 shards over: of one axis, or of replicas and shards."""
        return self.mesh[REPLICATE, DATA] if self.has_replicas_of_shards else self.mesh[DATA]

    def loss_context(self) -> AbstractContextManager[None]:
        """Return where the loss and all of backward run: its vocabulary may be split."""
        return loss_parallel() if self.order.mesh.tensor_parallel > 1 else nullcontext()

    def axes(self) -> dict[frozenset[int], Axis]:
        """Return the axes with several ranks, by those that this one meets on them."""
        groups = {name: self.mesh.get_group(name) for name in self.mesh.mesh_dim_names or ()}
        axes = {
            ranks_of(group): Axis(name=DATA if name == REPLICATE else name, group=group)
            for name, group in groups.items()
            if group.size() > 1
        }
        # Experts may be spread over all of the data axis: what goes over it is mostly theirs then.
        for name, own in ((DATA, self.expert_replicas), (EXPERT, self.experts)):
            if own is not None and own.size() > 1:
                axes.setdefault(ranks_of(own), Axis(name=name, group=own))
        return axes


def build_mesh(order: TrialOrder, *, device: torch.device) -> TrialMesh:
    """Return the device mesh of a plan; its ranks are numbered as the plan says."""
    sizes: list[tuple[str, int]] = []
    for axis in reversed(order.mesh.rank_order):
        match axis:
            case "data_parallel":
                shards = order.sharding.gradients
                if 1 < shards < order.mesh.data_parallel:
                    sizes.append((REPLICATE, order.mesh.data_parallel // shards))
                    sizes.append((DATA, shards))
                else:
                    sizes.append((DATA, order.mesh.data_parallel))
            case "tensor_parallel":
                sizes.append((TENSOR, order.mesh.tensor_parallel))
            case "pipeline_parallel":
                sizes.append((PIPELINE, order.mesh.pipeline_parallel))
    mesh = init_device_mesh(
        device.type, tuple(size for _, size in sizes), mesh_dim_names=tuple(name for name, _ in sizes)
    )
    experts, replicas = _expert_groups(mesh, order)
    return TrialMesh(mesh=mesh, order=order, experts=experts, expert_replicas=replicas)


def _expert_groups(
    mesh: DeviceMesh, order: TrialOrder
) -> tuple[distributed.ProcessGroup | None, distributed.ProcessGroup | None]:
    """Return the groups that this rank's experts are spread and repeated over; none where all have all."""
    size = order.mesh.expert_parallel
    if size == 1:
        return None, None
    names = mesh.mesh_dim_names or ()
    lines = mesh.mesh.movedim(names.index(DATA), -1).reshape(-1, order.mesh.data_parallel // size, size)
    spread = [ranks for line in lines for ranks in line.tolist()]
    repeated = [ranks for line in lines for ranks in line.T.tolist()]
    return _own_of(spread), _own_of(repeated)


def _own_of(groups: list[list[int]]) -> distributed.ProcessGroup:
    """Return this rank's one of some groups; every rank makes all of them, in the same order."""
    own = distributed.get_rank()
    made = [(ranks, distributed.new_group(ranks)) for ranks in groups]
    group: distributed.ProcessGroup = next(group for ranks, group in made if own in ranks)
    return group


def parallelized(chunk: Chunk, placed: Sequence[PlacedLayer], mesh: TrialMesh) -> Chunk:
    """Cut a chunk's layers over the mesh and wrap those that are recomputed, in place; return it."""
    order = mesh.order
    refuse_uneven(placed, order)
    if order.mesh.tensor_parallel > 1:
        for layer in chunk.layers:
            split_layer(layer, mesh.mesh[TENSOR], is_sequence_split=order.mesh.sequence_parallel)
    if mesh.experts is not None:
        for layer in chunk.layers:
            if isinstance(layer, Block) and isinstance(layer.mlp, ExpertsMlp):
                layer.mlp.spread(mesh.experts)
    for number, entry in enumerate(placed):
        if entry.recompute.mode is RecomputeMode.FULL:
            chunk.layers[number] = checkpoint_wrapper(chunk.layers[number])
    if mesh.is_sharded:
        _shard(chunk, placed, mesh)
    return chunk


def split_layer(layer: nn.Module, mesh: DeviceMesh, *, is_sequence_split: bool) -> None:
    """Split one layer over tensor parallel; between layers stand whole activations, or shards."""
    between = Shard(1) if is_sequence_split else Replicate()
    if isinstance(layer, Embedding):
        whole_first = layer.positions is not None
        parallelize_module(
            layer,
            mesh,
            {
                "words": RowwiseParallel(
                    input_layouts=Replicate(), output_layouts=Replicate() if whole_first else between
                )
            },
        )
        if whole_first and is_sequence_split:
            parallelize_module(
                layer,
                mesh,
                PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
            )
    elif isinstance(layer, Block):
        parallelize_module(layer, mesh, _block_styles(layer, is_sequence_split=is_sequence_split))
    elif isinstance(layer, nn.Linear):
        styles = ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(layer, mesh, styles)
    elif is_sequence_split:
        parallelize_module(layer, mesh, SequenceParallel(use_local_output=True))


def _block_styles(block: Block, *, is_sequence_split: bool) -> dict[str, ParallelStyle]:
    between = Shard(1) if is_sequence_split else Replicate()
    # Whole inputs are made once for all products that read them, and their gradients summed once.
    styles: dict[str, ParallelStyle] = {
        name: PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate())
        for name in ("attention", "mlp")
    }
    columns = ["attention.query", "attention.key", "attention.value", "mlp.up"]
    assert isinstance(block.mlp, Mlp), "a trial refuses experts beside tensor parallelism"
    columns += ["mlp.gate"] if block.mlp.gate is not None else []
    styles |= {name: ColwiseParallel() for name in columns}
    styles |= {name: RowwiseParallel(output_layouts=between) for name in ("attention.output", "mlp.down")}
    if is_sequence_split:
        styles |= {name: SequenceParallel() for name in ("attention_norm", "mlp_norm")}
    return styles


def _shard(chunk: Chunk, placed: Sequence[PlacedLayer], mesh: TrialMesh) -> None:
    """Shard each block over the data-parallel ranks, and what is left as one."""
    order = mesh.order
    is_freed = mesh.frees_gathered
    policy = MixedPrecisionPolicy()
    if order.job.precision == "bf16" and order.job.parameter_dtype == "fp32":
        reduced = torch.float32 if order.sharding.reduce_dtype is None else torch.bfloat16
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    host = CPUOffloadPolicy(pin_memory=mesh.mesh.device_type == "cuda")
    shard = partial(
        fully_shard,
        mesh=mesh.data_meshes,
        reshard_after_forward=is_freed,
        mp_policy=policy,
        offload_policy=host if order.on_host else OffloadPolicy(),
    )
    for module, entry in zip(chunk.layers, placed, strict=True):
        if isinstance(entry.layer, DecoderLayer | BlockLayer):
            shard(module)
    shard(chunk)


def refuse_uneven(placed: Sequence[PlacedLayer], order: TrialOrder) -> None:
    """Refuse tensor parallel over what it does not divide: torch's modules would hold uneven shards."""
    degree = order.mesh.tensor_parallel
    if order.mesh.sequence_parallel and order.job.sequence_length % degree:
        raise PlanCannotRun(f"{degree} ranks cannot split {order.job.sequence_length} positions evenly")
    for entry in placed:
        for split in entry.layer.splits:
            if split.axis == "expert_parallel" and split.pieces % order.mesh.expert_parallel:
                spread = order.mesh.expert_parallel
                raise PlanCannotRun(f"{spread} ranks cannot share {split.pieces} experts evenly")
            if split.axis == "tensor_parallel" and split.pieces % degree:
                raise PlanCannotRun(f"{degree} ranks cannot split {split.pieces} {split.name} evenly")
        vocabulary = getattr(entry.layer, "vocabulary", degree)
        if vocabulary % degree:
            raise PlanCannotRun(f"{degree} ranks cannot split {vocabulary} words evenly")
        if degree > 1 and getattr(entry.layer, "tied", False):
            raise PlanCannotRun("a trial has no tied head under tensor parallel")
