"""The answer: a plan, its prediction, how sure we are, and how the search ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from planner.strategy import TrainingPlan, Violation
from planner.units import Bytes, FlopsPerSecond, Seconds


class Status(StrEnum):
    """How a request ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"
    FITS = "fits"
    DOES_NOT_FIT = "does_not_fit"
    ILLEGAL = "illegal"


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeBreakdown:
    """Exposed seconds on the critical path, by cause; they add up to the step time."""

    compute: Seconds = 0.0
    recompute: Seconds = 0.0
    tensor_parallel: Seconds = 0.0
    context_parallel: Seconds = 0.0
    expert_parallel: Seconds = 0.0
    pipeline: Seconds = 0.0
    data_parallel: Seconds = 0.0
    offload: Seconds = 0.0
    bubble: Seconds = 0.0
    optimizer: Seconds = 0.0
    overhead: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBreakdown:
    """Bytes of one device at its worst moment, by cause; they add up to the peak."""

    parameters: Bytes = 0.0
    gradients: Bytes = 0.0
    optimizer: Bytes = 0.0
    activations: Bytes = 0.0
    logits: Bytes = 0.0
    buffers: Bytes = 0.0
    framework: Bytes = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Predicted memory of the devices of one stage.

    ``peak_bytes`` = allocated + fragmentation + framework: what must fit. ``peak_allocated_bytes``
    counts live tensors, ``peak_reserved_bytes`` what their allocator holds. ``capacity_bytes`` is what the
    driver reports.
    """

    stage: int
    node_group: str
    peak_bytes: Bytes
    peak_allocated_bytes: Bytes
    peak_reserved_bytes: Bytes
    capacity_bytes: Bytes
    fits: bool
    interval_bytes: tuple[Bytes, Bytes]
    breakdown_bytes: MemoryBreakdown


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMemory:
    """Predicted host memory of one node of a group."""

    node_group: str
    memory_bytes: Bytes
    capacity_bytes: Bytes
    nvme_bytes_per_node: Bytes
    fits: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvenanceShares:
    """Shares of the predicted time by where its figures come from; they add up to one."""

    measured: float = 0.0
    interpolated: float = 0.0
    datasheet: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What a plan would do: time, rates, memory, and how sure we are (80 % intervals)."""

    step_time_seconds: Seconds
    step_time_interval_seconds: tuple[Seconds, Seconds]
    samples_per_second: float
    tokens_per_second: float | None
    tokens_per_second_per_device: float | None
    model_flops_per_second_per_device: FlopsPerSecond
    mfu: float
    breakdown_seconds: TimeBreakdown
    memory: tuple[StageMemory, ...]
    host: tuple[HostMemory, ...]
    fits: bool
    provenance: ProvenanceShares
    cost_per_step: float | None = None
    energy_joules_per_step: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshCounts:
    """Meshes of the space: all, ruled out by a bound, solved exactly."""

    total: int
    pruned: int
    solved: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """How the search ended: no plan of the described space is better than ``lower_bound``."""

    objective: str
    unit: str
    value: float
    lower_bound: float
    relative_gap: float
    proven_optimal: bool
    dimensions: Mapping[str, str] = field(default_factory=dict)
    meshes: MeshCounts = MeshCounts(total=0, pruned=0, solved=0)
    plans_in_space: float = 0.0
    solve_seconds: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """Another plan worth knowing, and why."""

    why: str
    plan: TrainingPlan
    prediction: Prediction


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One sentence about the answer and the field that backs it."""

    text: str
    pointer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortage:
    """A resource that even the most frugal plan lacks."""

    resource: str
    stage: int | None
    node_group: str
    needed_bytes: Bytes
    available_bytes: Bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestFit:
    """The smallest change of the request under which a plan fits: JSON pointer to new value."""

    change: Mapping[str, object]
    plan: TrainingPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """What a changed request comes to, solved again: JSON pointer to new value, None for left out.

    Without a plan (``status`` says why) there is nothing to compare.
    """

    why: str
    change: Mapping[str, object]
    status: Status
    plan: TrainingPlan | None
    step_time_seconds: Seconds | None
    relative_change: float | None
    """Of the step time."""
    changes_plan: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedProfile:
    """A profile that a prediction was made from."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineEvent:
    """One operation of the replay on one stage, for drawing: start and end in seconds."""

    stage: int
    virtual_stage: int
    micro_batch: int
    operation: str
    start_seconds: Seconds
    end_seconds: Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The outcome of ``plan`` or ``evaluate``, without what the service adds (id, state)."""

    status: Status
    profiles: tuple[UsedProfile, ...] = ()
    plan: TrainingPlan | None = None
    prediction: Prediction | None = None
    violations: tuple[Violation, ...] = ()
    certificate: Certificate | None = None
    alternatives: tuple[Alternative, ...] = ()
    explanation: tuple[Explanation, ...] = ()
    warnings: tuple[str, ...] = ()
    shortage: tuple[Shortage, ...] = ()
    nearest_fit: NearestFit | None = None
    sensitivity: tuple[Sensitivity, ...] | None = None
    """None where nobody asked."""
