"""A training plan as data: mesh, batch, schedule, sharding, stages, and each layer's strategy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from math import prod


class ScheduleName(StrEnum):
    """The order of forward and backward passes in a pipeline."""

    GPIPE = "gpipe"
    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    INTERLEAVED = "interleaved"
    BREADTH_FIRST = "breadth-first"
    ZB_H1 = "zb-h1"
    ZB_V = "zb-v"
    DUALPIPE_V = "dualpipe-v"

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of weights are passes of their own, apart from those of inputs."""
        return self in _SPLIT

    @property
    def is_written_out(self) -> bool:
        """Whether torch has a program of its own for it, not a list of actions that another one runs."""
        return self in {ScheduleName.GPIPE, ScheduleName.ONE_FORWARD_ONE_BACKWARD}

    @property
    def folds(self) -> bool:
        """Whether chunks go down the stages and back up: stage i of p holds chunks i and 2 p - 1 - i."""
        return self in _FOLDED

    @property
    def fewest_chunks(self) -> int:
        """The fewest chunks per stage that it runs."""
        return _CHUNKS[self][0]

    @property
    def most_chunks(self) -> int | None:
        """The most chunks per stage that it runs; None for as many as there are layers."""
        return _CHUNKS[self][1]

    def runs(self, virtual_stages: int) -> bool:
        """Whether it runs so many chunks per stage."""
        fewest, most = _CHUNKS[self]
        return fewest <= virtual_stages and (most is None or virtual_stages <= most)


_FOLDED = frozenset({ScheduleName.ZB_V, ScheduleName.DUALPIPE_V})
_SPLIT = _FOLDED | {ScheduleName.ZB_H1}
_CHUNKS: Mapping[ScheduleName, tuple[int, int | None]] = {
    ScheduleName.GPIPE: (1, 1),
    ScheduleName.ONE_FORWARD_ONE_BACKWARD: (1, 1),
    ScheduleName.INTERLEAVED: (2, None),
    ScheduleName.BREADTH_FIRST: (2, None),
    ScheduleName.ZB_H1: (1, None),
    ScheduleName.ZB_V: (2, 2),
    ScheduleName.DUALPIPE_V: (2, 2),
}
"""The fewest and the most chunks per stage of each schedule."""


class ZeroStage(IntEnum):
    """1 shards optimizer states, 2 also gradients, 3 also parameters."""

    NONE = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    PARAMETERS = 3


class RecomputeMode(StrEnum):
    """What backward computes again: nothing, named modules, the whole layer."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recompute:
    """The recomputation of one layer; ``modules`` only with ``selective``."""

    mode: RecomputeMode = RecomputeMode.NONE
    modules: tuple[str, ...] = ()


class ContextParallelScheme(StrEnum):
    """How attention works on sequences that are split over context parallel.

    ``mixed`` is all-to-all over neighbours inside, a ring outside (USP; hierarchical context parallelism).
    """

    RING = "ring"
    ALL_TO_ALL = "all_to_all"
    ALL_GATHER = "all_gather"
    MIXED = "mixed"


DEFAULT_RANK_ORDER = ("tensor_parallel", "context_parallel", "data_parallel", "pipeline_parallel")
DEFAULT_EXPERT_RANK_ORDER = (
    "expert_tensor_parallel",
    "expert_parallel",
    "data_parallel",
    "pipeline_parallel",
)


PIPELINE_INSIDE = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
"""Stages of a pipeline on neighbouring ranks, replicas far apart."""
RankOrder = tuple[str, ...]
_COUNTERPARTS = {"tensor_parallel": "expert_tensor_parallel", "context_parallel": "expert_parallel"}


def expert_order_beside(rank_order: RankOrder) -> RankOrder:
    """Return the order of the ranks of experts that goes with one of all ranks."""
    return tuple(_COUNTERPARTS.get(axis, axis) for axis in rank_order)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mesh:
    """Parallel degrees and how ranks are numbered, innermost first."""

    data_parallel: int = 1
    tensor_parallel: int = 1
    context_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel_scheme: ContextParallelScheme = ContextParallelScheme.RING
    all_to_all_degree: int = 1
    rank_order: tuple[str, ...] = DEFAULT_RANK_ORDER
    expert_rank_order: tuple[str, ...] = DEFAULT_EXPERT_RANK_ORDER

    @property
    def world_size(self) -> int:
        """Ranks of the mesh; experts share them."""
        return self.data_parallel * self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @property
    def head_exchange(self) -> int:
        """Neighbours over context parallel that trade parts of the sequence for parts of the heads."""
        match self.context_parallel_scheme:
            case ContextParallelScheme.ALL_TO_ALL:
                return self.context_parallel
            case ContextParallelScheme.MIXED:
                return self.all_to_all_degree
        return 1

    @property
    def gathers_keys(self) -> bool:
        """Whether every context-parallel rank gathers all keys and values."""
        return self.context_parallel > 1 and self.context_parallel_scheme is ContextParallelScheme.ALL_GATHER

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters, experts aside: data and context parallel."""
        return self.data_parallel * self.context_parallel

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts: those of a stage, over expert and expert tensor parallel."""
        return self.replicas * self.tensor_parallel // (self.expert_parallel * self.expert_tensor_parallel)

    @property
    def stages_agree(self) -> bool:
        """Whether experts and everything else have their stages on the same devices."""
        usual = (self.rank_order, self.expert_rank_order) == (DEFAULT_RANK_ORDER, DEFAULT_EXPERT_RANK_ORDER)
        if usual or self.pipeline_parallel == 1:
            return True
        own = {axis: int(getattr(self, axis)) for axis in self.rank_order}
        experts = {
            "expert_tensor_parallel": self.expert_tensor_parallel,
            "expert_parallel": self.expert_parallel,
            "data_parallel": self.expert_replicas,
        }
        return _inside_stages(self.rank_order, own) == _inside_stages(self.expert_rank_order, experts)


def _inside_stages(order: RankOrder, degrees: Mapping[str, int]) -> int:
    """Return how many neighbours are on one stage."""
    return prod(degrees[axis] for axis in order[: order.index("pipeline_parallel")])


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Samples per forward pass of one rank, and such passes per step."""

    micro_batch_size: int
    num_micro_batches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The pipeline schedule; ``virtual_stages`` chunks per stage."""

    name: ScheduleName = ScheduleName.ONE_FORWARD_ONE_BACKWARD
    virtual_stages: int = 1
    interleave_group_size: int | None = None


def chunk_places(schedule: Schedule, *, stages: int) -> list[tuple[int, int]]:
    """Return the turn and the stage of every chunk in forward order.

    Chunks go down the stages turn by turn; where the schedule folds the second turn goes back up.
    """
    return [
        (turn, stages - 1 - stage if schedule.name.folds and turn == 1 else stage)
        for turn in range(schedule.virtual_stages)
        for stage in range(stages)
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharding:
    """Sizes of the groups over data x context parallel that share each state."""

    zero_stage: ZeroStage = ZeroStage.NONE
    parameters: int = 1
    gradients: int = 1
    optimizer: int = 1
    reshard_after_forward: bool = True
    gather_dtype: str | None = None
    reduce_dtype: str | None = None
    experts: "Sharding | None" = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Offload:
    """Shares (0 to 1) of one state kept off the device."""

    cpu: float = 0.0
    nvme: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerOffload:
    """Shares of each state of a layer kept off the device."""

    optimizer: Offload = Offload()
    parameters: Offload = Offload()
    gradients: Offload = Offload()
    activations: Offload = Offload()


@dataclass(frozen=True, kw_only=True, slots=True)
class HostShares:
    """Shares (0 to 1) of the states of every layer that rest on the host of their node."""

    optimizer: float = 0.0
    parameters: float = 0.0
    gradients: float = 0.0

    @property
    def is_any(self) -> bool:
        """Whether anything rests there."""
        return self.optimizer > 0 or self.parameters > 0 or self.gradients > 0


NOTHING_ON_HOST = HostShares()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRange:
    """``count`` layers of a kind from ``first`` (within the kind) that share one strategy."""

    kind: str
    first: int
    count: int
    recompute: Recompute = Recompute()
    offload: LayerOffload = LayerOffload()
    mesh: Mesh | None = None
    sharding: Sharding | None = None
    of: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """The layers that one device runs in one pass, in execution order."""

    virtual_stage: int
    layers: tuple[LayerRange, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRange:
    """Devices ``first``, ``first + stride``, ... of a node group."""

    first: int
    count: int
    stride: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlacement:
    """Where (a part of) a stage runs."""

    node_group: str
    devices: tuple[DeviceRange, ...]
    data_parallel: int
    tensor_parallel: int
    context_parallel: int
    batch_share: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One pipeline stage: its devices and its chunks."""

    stage: int
    placement: tuple[StagePlacement, ...]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """A whole plan in the full form of the contract."""

    mesh: Mesh
    batch: Batch
    schedule: Schedule
    sharding: Sharding
    stages: tuple[Stage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortPlan:
    """The flat short form: degrees and choices; ``expand`` makes the full form of it.

    ``None`` means "as the framework would take it". ``extra`` holds further words of mesh, batch,
    schedule and sharding that stood flat in the document.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    data_parallel: int | None = None
    virtual_stages: int | None = None
    micro_batch_size: int = 1
    zero_stage: int | None = None
    sequence_parallel: bool | None = None
    schedule: Schedule | None = None
    sharding: Sharding | None = None
    recompute: Recompute | None = None
    layers_per_stage: tuple[int, ...] | None = None
    node_group: str | None = None
    offload: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """A rule that a plan breaks: where, which, and the legal values nearest to what was given."""

    pointer: str
    rule: str
    nearest_legal: tuple[object, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWay:
    """One way to run a layer: what is computed again, and which share of what it keeps is on the host."""

    recompute: Recompute = Recompute()
    activations: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What is decided for the whole job before layers are split: one point of the outer search.

    ``recompute`` lists the modes that a layer may choose from: one where the framework decides it
    for the whole job. ``activations`` says beside each of them which share of what the layer keeps for
    backward waits on the host; empty for none.
    """

    mesh: Mesh
    batch: Batch
    schedule: Schedule
    sharding: Sharding
    recompute: tuple[Recompute, ...]
    on_host: HostShares = NOTHING_ON_HOST
    activations: tuple[float, ...] = ()

    @property
    def ways(self) -> tuple["LayerWay", ...]:
        """The ways to run a layer, as assignments count them."""
        shares = self.activations or (0.0,) * len(self.recompute)
        return tuple(
            LayerWay(recompute=mode, activations=share)
            for mode, share in zip(self.recompute, shares, strict=True)
        )

    @property
    def offloads(self) -> bool:
        """Whether anything of it is on the host."""
        return self.on_host.is_any or any(self.activations)
