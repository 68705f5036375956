"""Calculon's requests answered by meshplan, the plans in Calculon's execution vocabulary; see peers.md."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, prod
from typing import Final

from planner.cluster import Cluster
from planner.cluster_presets import cluster_from_preset
from planner.errors import InvalidRequest
from planner.framework import Framework
from planner.frameworks import framework_by_name
from planner.job import AttentionKind, Constraints, Job, SolverLimits
from planner.plan import Result
from planner.planning import PlanRequest, best_plan
from planner.profile import builtin_profile
from planner.setting import divisors
from planner.strategy import LayerRange, Mesh, RecomputeMode, ScheduleName, TrainingPlan, ZeroStage
from planner.workload.huggingface import workload_from_config

FRAMEWORK: Final = "megatron-core"
SYSTEMS: Final = {"a100-sxm-80gb": "systems/a100_80g.json", "h100-sxm": "systems/h100_80g_nvl8.json"}
"""Calculon's files for our clusters: network 0 joins the 8 devices of a node, network 1 the nodes."""
LIMITS: Final = SolverLimits(time_limit_seconds=300)
SAYABLE: Final = Constraints(
    fixed={"context_parallel": 1}, bounds={"zero_stage": (ZeroStage.NONE, ZeroStage.OPTIMIZER)}
)
"""What Calculon has words for: three axes, optimizer states sharded or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Application:
    """A model in Calculon's words: the sizes of a GPT whose blocks are all alike."""

    hidden: int
    feedforward: int
    seq_size: int
    attn_heads: int
    attn_size: int
    num_blocks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerRequest:
    """One of Calculon's requests."""

    name: str
    application: Application
    cluster: str
    num_devices: int
    batch_size: int


def _gpt(*, hidden: int, heads: int, blocks: int, sequence: int) -> Application:
    return Application(
        hidden=hidden,
        feedforward=4 * hidden,
        seq_size=sequence,
        attn_heads=heads,
        attn_size=hidden // heads,
        num_blocks=blocks,
    )


_22B: Final = _gpt(hidden=6144, heads=64, blocks=48, sequence=2048)
_175B: Final = _gpt(hidden=12288, heads=96, blocks=96, sequence=2048)
_1T: Final = _gpt(hidden=25600, heads=160, blocks=128, sequence=2048)
_70B: Final = _gpt(hidden=8192, heads=64, blocks=80, sequence=4096)
A100: Final = "a100-sxm-80gb"
REQUESTS: Final = (
    PeerRequest(name="22B", application=_22B, cluster=A100, num_devices=64, batch_size=64),
    PeerRequest(name="175B", application=_175B, cluster=A100, num_devices=1024, batch_size=1536),
    PeerRequest(name="1T on 3,072", application=_1T, cluster=A100, num_devices=3072, batch_size=3072),
    PeerRequest(name="1T on 4,096", application=_1T, cluster=A100, num_devices=4096, batch_size=4096),
    PeerRequest(name="70B", application=_70B, cluster="h100-sxm", num_devices=512, batch_size=1024),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """A plan in Calculon's words, all of those that `calculon llm` reads; network numbers are of SYSTEMS."""

    num_procs: int
    tensor_par: int
    pipeline_par: int
    data_par: int
    tensor_par_net: int
    pipeline_par_net: int
    data_par_net: int
    batch_size: int
    microbatch_size: int
    datatype: str
    fused_activation: bool
    attention_type: str
    activation_recompute: str
    pipeline_interleaving: int
    optimizer_sharding: bool
    tensor_par_comm_type: str
    tensor_par_overlap: str
    seq_par_ag_redo: bool
    data_par_overlap: bool
    weight_offload: bool
    activations_offload: bool
    optimizer_offload: bool
    training: bool


ORDERS: Final = (ScheduleName.ONE_FORWARD_ONE_BACKWARD, ScheduleName.INTERLEAVED)
OFFLOADED: Final = ("parameters", "activations", "optimizer")
RECOMPUTATION: Final[Mapping[RecomputeMode, str]] = {
    RecomputeMode.NONE: "none",
    RecomputeMode.SELECTIVE: "attn_only",
    RecomputeMode.FULL: "full",
}


def execution(
    plan: TrainingPlan, *, cluster: Cluster, framework: Framework, attention: AttentionKind
) -> Execution:
    """Return a plan in Calculon's words.

    Raises ValueError for a plan of more axes, more sharding or several strategies, which no word says.
    What is rounded rather than refused, `unsaid` lists.
    """
    mesh, layers = plan.mesh, [layer for layer in _layers(plan) if layer.kind == "decoder"]
    if mesh.context_parallel > 1 or mesh.expert_parallel > 1:
        raise ValueError("Calculon has no context and no expert parallelism")
    if max(plan.sharding.parameters, plan.sharding.gradients) > 1:
        raise ValueError("Calculon shards optimizer states alone")
    if plan.schedule.name not in ORDERS:
        raise ValueError(f"Calculon has no {plan.schedule.name} schedule")
    recompute = _recomputation(layers, attention)
    sequence_parallel = mesh.sequence_parallel and mesh.tensor_parallel > 1
    inner = cluster.node_groups[0].devices_per_node
    return Execution(
        num_procs=mesh.world_size,
        tensor_par=mesh.tensor_parallel,
        pipeline_par=mesh.pipeline_parallel,
        data_par=mesh.data_parallel,
        tensor_par_net=_network(mesh, "tensor_parallel", devices_per_node=inner),
        pipeline_par_net=_network(mesh, "pipeline_parallel", devices_per_node=inner),
        data_par_net=_network(mesh, "data_parallel", devices_per_node=inner),
        batch_size=plan.batch.micro_batch_size * plan.batch.num_micro_batches * mesh.data_parallel,
        microbatch_size=plan.batch.micro_batch_size,
        # Its systems give efficiencies under this name; bfloat16 is as wide.
        datatype="float16",
        fused_activation=True,
        attention_type="multihead",
        activation_recompute=recompute,
        pipeline_interleaving=plan.schedule.virtual_stages,
        optimizer_sharding=plan.sharding.optimizer > 1,
        tensor_par_comm_type=_exchange(
            sequence_parallel=sequence_parallel,
            scatters=framework.scatters_transfers and mesh.tensor_parallel > 1,
        ),
        tensor_par_overlap="none",
        seq_par_ag_redo=sequence_parallel and not framework.saves_gathered_inputs and recompute != "full",
        data_par_overlap=mesh.data_parallel > 1 and framework.overlaps_gradient_reduction,
        weight_offload=_is_offloaded(layers, "parameters"),
        activations_offload=_is_offloaded(layers, "activations"),
        optimizer_offload=_is_offloaded(layers, "optimizer"),
        training=True,
    )


def _network(mesh: Mesh, axis: str, *, devices_per_node: int) -> int:
    """Return the network of a group of an axis: that of a node, or the one beyond where it leaves it."""
    inside = mesh.rank_order[: mesh.rank_order.index(axis) + 1]
    reach = prod(getattr(mesh, word) for word in inside)
    return int(getattr(mesh, axis) > 1 and reach > devices_per_node)


def unsaid(plan: TrainingPlan) -> Iterator[str]:
    """Yield what Calculon rounds: it fills stages evenly, rounded up, and offloads all of a state or none."""
    counts = {
        sum(layer.count for layer in chunk.layers if layer.kind == "decoder")
        for stage in plan.stages
        for chunk in stage.chunks
    }
    if len(counts) > 1:
        yield f"chunks hold {min(counts)} to {max(counts)} layers, in Calculon equally many"
    for state in OFFLOADED:
        shares = {_share(layer, state) for layer in _layers(plan) if layer.kind == "decoder"}
        if not shares <= {0.0, 1.0}:
            yield f"{min(shares):.0%} to {max(shares):.0%} of {state} are offloaded, in Calculon all"


def _layers(plan: TrainingPlan) -> Iterator[LayerRange]:
    for stage in plan.stages:
        for chunk in stage.chunks:
            yield from chunk.layers


def _recomputation(layers: Sequence[LayerRange], attention: AttentionKind) -> str:
    modes = {layer.recompute.mode for layer in layers}
    if len(modes) > 1:
        raise ValueError("Calculon recomputes all blocks alike")
    (mode,) = modes
    if mode is RecomputeMode.NONE and attention is AttentionKind.FLASH:
        # A fused core keeps no scores and computes them again in backward.
        return RECOMPUTATION[RecomputeMode.SELECTIVE]
    return RECOMPUTATION[mode]


def _exchange(*, sequence_parallel: bool, scatters: bool) -> str:
    """Return how tensor-parallel ranks exchange, and whether each sends its share to the next stage."""
    if sequence_parallel:
        return "rs_ag"
    return "p2p_rs_ag" if scatters else "ar"


def _is_offloaded(layers: Sequence[LayerRange], state: str) -> bool:
    return any(_share(layer, state) for layer in layers)


def _share(layer: LayerRange, state: str) -> float:
    """Return the share of a state that is kept off the device."""
    offload = getattr(layer.offload, state)
    return float(offload.cpu + offload.nvme)


def plan_request(peer: PeerRequest) -> PlanRequest:
    """Return a request of Calculon's as one of ours, with its unfused attention."""
    size = peer.application
    config = {
        "model_type": "gpt2",
        "vocab_size": 51200,
        "n_positions": size.seq_size,
        "n_embd": size.hidden,
        "n_layer": size.num_blocks,
        "n_head": size.attn_heads,
        "n_inner": size.feedforward,
    }
    return PlanRequest(
        workload=workload_from_config(config, name=peer.name),
        cluster=cluster_from_preset(peer.cluster, peer.num_devices),
        job=Job(
            global_batch_size=peer.batch_size,
            sequence_length=size.seq_size,
            framework=FRAMEWORK,
            attention=AttentionKind.UNFUSED,
        ),
        constraints=SAYABLE,
        solver=LIMITS,
        profiles=(builtin_profile(f"{peer.cluster}/published"),),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What meshplan makes of a request, as both tools say it."""

    request: str
    system: str
    application: Application
    execution: Execution
    unsaid: tuple[str, ...]
    status: str
    step_time_seconds: float
    best_of_all_seconds: float
    """The best plan's that may fill its chunks as it likes."""
    cpu_seconds: float


def answer(peer: PeerRequest) -> Answer:
    """Plan a request and return the best plan that Calculon has words for; ValueError where nothing fits."""
    request = plan_request(peer)
    started = time.process_time()
    free = best_plan(request)
    result = free if _comes_out(free, peer) else min(_best_even(request, peer), key=_seconds)
    spent = time.process_time() - started
    if result.plan is None:
        raise ValueError(f"no plan fits {peer.name}")
    return Answer(
        request=f"{peer.name}: {peer.num_devices} x {peer.cluster}, batch {peer.batch_size}",
        system=SYSTEMS[peer.cluster],
        application=peer.application,
        execution=execution(
            result.plan,
            cluster=request.cluster,
            framework=framework_by_name(FRAMEWORK),
            attention=request.job.attention,
        ),
        unsaid=tuple(unsaid(result.plan)),
        status=result.status,
        step_time_seconds=_seconds(result),
        best_of_all_seconds=_seconds(free),
        cpu_seconds=spent,
    )


def _seconds(result: Result) -> float:
    return inf if result.certificate is None else result.certificate.value


def _comes_out(result: Result, peer: PeerRequest) -> bool:
    """Whether Calculon can interleave a plan's chunks: it wants equal numbers of a stage's blocks in each."""
    plan = result.plan
    return plan is None or _turns_fit(peer, plan.mesh.pipeline_parallel, plan.schedule.virtual_stages)


def _turns_fit(peer: PeerRequest, stages: int, turns: int) -> bool:
    return -(-peer.application.num_blocks // stages) % turns == 0


def _best_even(request: PlanRequest, peer: PeerRequest) -> Iterator[Result]:
    """Yield the best plan of each number of stages and of chunks that Calculon can interleave."""
    blocks, constraints = peer.application.num_blocks, request.constraints
    for stages in (number for number in divisors(peer.num_devices) if number <= blocks):
        for turns in (number for number in range(1, blocks // stages + 1) if stages > 1 or number == 1):
            if _turns_fit(peer, stages, turns):
                pair = {"pipeline_parallel": stages, "virtual_stages": turns}
                fixed = replace(constraints, fixed={**constraints.fixed, **pair})
                try:
                    yield best_plan(replace(request, constraints=fixed))
                except InvalidRequest:
                    # No batch of this request fills such a pipeline.
                    continue


def main() -> None:
    """Print one JSON document of all answers on standard output, a line about each on standard error."""
    answers = [answer(peer) for peer in REQUESTS]
    for one in answers:
        print(
            f"{one.request}: {one.status}, {one.step_time_seconds:.2f} s per step (of all plans "
            f"{one.best_of_all_seconds:.2f} s), planned in {one.cpu_seconds:.2f} CPU s",
            file=sys.stderr,
        )
    print(json.dumps([asdict(one) for one in answers], indent=2))


if __name__ == "__main__":
    main()
