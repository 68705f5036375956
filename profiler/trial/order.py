"""What a trial is asked to run: a chain of layers, a plan in its full form, and what it needs of the job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import InvalidRequest
from planner.strategy import (
    Batch,
    LayerRange,
    Mesh,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Sharding,
    ZeroStage,
    chunk_places,
)
from planner.workload.chain import workload_from_layers
from planner.workload.layers import Layer
from profiler.trial.errors import PlanCannotRun

OPTIMIZERS = ("adam", "adamw", "sgd")
PRECISIONS = ("fp32", "tf32", "bf16")
STATES = ("parameters", "gradients", "optimizer")
SELECTIVE_MODULES = frozenset({"core_attention"})
"""What a layer can compute again by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialJob:
    """What the run needs of the job; ``parameter_dtype`` is that of parameters, gradients and moments."""

    sequence_length: int
    precision: str
    parameter_dtype: str
    optimizer: str
    unfused_attention: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedLayer:
    """One layer of the chain, and how it is recomputed."""

    number: int
    """In the chain, from 0: what its weights are drawn by."""
    layer: Layer
    recompute: Recompute
    on_host: bool = False
    """Whether its parameters, their gradients and the optimizer's states rest on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialOrder:
    """A plan to run: ``chunks`` are the layers of each chunk, chunks and layers in execution order."""

    job: TrialJob
    mesh: Mesh
    batch: Batch
    schedule: Schedule
    sharding: Sharding
    chunks: tuple[tuple[PlacedLayer, ...], ...]
    device: str | None = None
    """The name of the device that it was planned for."""

    @property
    def layers(self) -> tuple[PlacedLayer, ...]:
        """The whole chain in execution order."""
        return tuple(placed for chunk in self.chunks for placed in chunk)

    def chunks_of(self, stage: int) -> tuple[int, ...]:
        """Return the numbers of the chunks that a stage holds."""
        places = chunk_places(self.schedule, stages=self.mesh.pipeline_parallel)
        return tuple(number for number, (_, own) in enumerate(places) if own == stage)

    @property
    def on_host(self) -> bool:
        """Whether states rest on the host: of all layers alike."""
        return any(placed.on_host for placed in self.layers)

    @property
    def global_batch_size(self) -> int:
        """Samples of one step."""
        return self.batch.micro_batch_size * self.batch.num_micro_batches * self.mesh.data_parallel


def read_order(document: Mapping[str, Any]) -> TrialOrder:
    """Return what a document asks to run; PlanCannotRun names what a trial does not have."""
    try:
        order = _order(document)
    except (KeyError, TypeError, InvalidRequest) as error:
        raise PlanCannotRun(f"no plan to run: {error}") from error
    _refuse_what_is_missing(order)
    return order


def _order(document: Mapping[str, Any]) -> TrialOrder:
    plan = document["plan"]
    schedule = Schedule(**{**plan["schedule"], "name": ScheduleName(plan["schedule"]["name"])})
    return TrialOrder(
        job=TrialJob(**document["job"]),
        mesh=Mesh(**{key: _frozen(value) for key, value in plan["mesh"].items()}),
        batch=Batch(**plan["batch"]),
        schedule=schedule,
        sharding=Sharding(**{**plan["sharding"], "zero_stage": ZeroStage(plan["sharding"]["zero_stage"])}),
        chunks=tuple(_chunks(plan["stages"], document, schedule)),
        device=document.get("device"),
    )


def _chunks(
    stages: list[Mapping[str, Any]], document: Mapping[str, Any], schedule: Schedule
) -> Iterator[tuple[PlacedLayer, ...]]:
    """Yield the layers of each chunk, turn by turn and stage by stage."""
    workload = workload_from_layers({"layers": document["layers"]})
    by_kind: dict[str, list[tuple[int, Layer]]] = {}
    chain = [run.layer for run in workload.runs for _ in range(run.count)]
    for number, layer in enumerate(chain):
        by_kind.setdefault(layer.kind, []).append((number, layer))
    for turn, stage in chunk_places(schedule, stages=len(stages)):
        entries = stages[stage]["chunks"][turn]["layers"]
        ranges = [(_range(entry), _is_on_host(entry.get("offload") or {})) for entry in entries]
        yield tuple(
            PlacedLayer(number=number, layer=layer, recompute=entry.recompute, on_host=on_host)
            for entry, on_host in ranges
            for number, layer in by_kind[entry.kind][entry.first : entry.first + entry.count]
        )


def _range(entry: Mapping[str, Any]) -> LayerRange:
    for word in ("mesh", "sharding", "of"):
        if entry.get(word) is not None:
            raise PlanCannotRun(f"a trial runs no layers with a {word} of their own")
    recompute = entry.get("recompute", {"mode": "none"})
    return LayerRange(
        kind=entry["kind"],
        first=entry["first"],
        count=entry["count"],
        recompute=Recompute(
            mode=RecomputeMode(recompute["mode"]), modules=tuple(recompute.get("modules", ()))
        ),
    )


def _is_on_host(offload: Mapping[str, Mapping[str, float]]) -> bool:
    """Return whether all states of some layers rest on the host, as FSDP2 has them, or none of them.

    Raises PlanCannotRun for anything else that is kept there.
    """
    if any(tiers.get("nvme") for tiers in offload.values()):
        raise PlanCannotRun("a trial keeps nothing on NVMe")
    shares = {word: tiers.get("cpu", 0.0) for word, tiers in offload.items()}
    if shares.get("activations"):
        raise PlanCannotRun("a trial keeps no activations on the host")
    if {shares.get(word, 0.0) for word in STATES} not in ({0.0}, {1.0}):
        raise PlanCannotRun(
            "a trial keeps parameters, gradients and optimizer states on the host together and whole, or none"
        )
    return shares.get("parameters", 0.0) == 1.0


def _refuse_what_is_missing(order: TrialOrder) -> None:
    mesh, sharding = order.mesh, order.sharding
    rules = (
        (mesh.context_parallel == 1, "context parallel"),
        (sharding.experts is None, "experts that are sharded by themselves"),
        (sharding.gather_dtype is None, "parameters that are gathered in a format of their own"),
        (sharding.reduce_dtype in {None, "bf16"}, "gradients that are reduced in a format but bf16"),
        (mesh.expert_tensor_parallel == 1, "experts cut over tensor parallel ranks"),
        (mesh.tensor_parallel == 1 or not _has_experts(order), "experts beside tensor parallel"),
        (
            mesh.expert_parallel == 1 or sharding.zero_stage is ZeroStage.NONE,
            "experts spread over ranks beside states that are sharded (ZeRO stage 1, 2 or 3)",
        ),
        (
            mesh.expert_parallel == 1 or mesh.data_parallel % mesh.expert_parallel == 0,
            "experts spread over other ranks than those of data parallel",
        ),
        (order.job.precision in PRECISIONS, f"precision {order.job.precision}"),
        (order.job.parameter_dtype in {"fp32", "bf16"}, f"parameters in {order.job.parameter_dtype}"),
        (order.job.optimizer in OPTIMIZERS, f"optimizer {order.job.optimizer}"),
        (sharding.zero_stage is ZeroStage.NONE or _is_one_group(order), "states in groups of several sizes"),
        (
            not order.on_host or (_is_whole_on_host(order) and sharding.zero_stage >= ZeroStage.GRADIENTS),
            "states on the host but those of all layers, sharded with their gradients (ZeRO stage 2 or 3)",
        ),
        (all(_is_known(placed.recompute) for placed in order.layers), "recomputation of the modules named"),
    )
    for holds, what in rules:
        if not holds:
            raise PlanCannotRun(f"a trial has no {what}")


def _has_experts(order: TrialOrder) -> bool:
    return any(split.axis == "expert_parallel" for placed in order.layers for split in placed.layer.splits)


def _is_whole_on_host(order: TrialOrder) -> bool:
    return all(placed.on_host for placed in order.layers)


def _is_known(recompute: Recompute) -> bool:
    is_selective = recompute.mode is RecomputeMode.SELECTIVE
    return not is_selective or frozenset(recompute.modules) <= SELECTIVE_MODULES


def _is_one_group(order: TrialOrder) -> bool:
    """Return whether what is sharded is sharded over one group: all replicas below gradients."""
    sharding, replicas = order.sharding, order.mesh.data_parallel
    if sharding.zero_stage is ZeroStage.OPTIMIZER:
        return sharding.optimizer == replicas
    sizes = {sharding.gradients, sharding.optimizer}
    if sharding.zero_stage is ZeroStage.PARAMETERS:
        sizes.add(sharding.parameters)
    return len(sizes) == 1


def _frozen(value: Any) -> Any:  # noqa: ANN401 - whatever JSON says
    return tuple(value) if isinstance(value, list) else value
