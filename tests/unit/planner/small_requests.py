"""Random small requests: tiny models, a few devices on one or two levels, memory that may bind."""

from dataclasses import replace
from random import Random
from typing import Final

from planner.cluster import Cluster, Level, NodeGroup
from planner.cluster_presets import cluster_from_preset
from planner.framework import Grain
from planner.frameworks import FRAMEWORKS, framework_by_name
from planner.job import AttentionKind, Constraints, Job, Precision, SolverLimits, Trainable
from planner.planning import PlanRequest
from planner.profile import builtin_profile
from planner.strategy import RecomputeMode
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import DECODER, Workload

SYSTEMS: Final = ("a100-sxm-80gb", "h100-sxm")
SHAPES: Final = (
    *((1, 1),) * 2,
    *((1, 2),) * 5,
    *((2, 1),) * 2,
    *((1, 3),) * 2,
    *((1, 4),) * 2,
    *((2, 2),) * 2,
    (1, 5),
    (1, 6),
    (3, 2),
    (1, 8),
)
"""Nodes, and devices of each."""
EXPERTS: Final = 0.25
"""Share of the models that have experts."""
WITHOUT_EXPERTS: Final = ("nanotron",)
"""Frameworks that train no experts at all and refuse such requests."""
CONSENTING: Final = 3
"""One in so many requests lets plans send quantized parameters and gradients."""
FEW_DEVICES, FEW_LAYERS, FEW_SAMPLES = 2, 2, 3
"""Up to so many, a request with experts may leave open which modules run again: each set is another plan."""
HALF_FROZEN: Final = 6
"""One in so many requests leaves the layers of the body as they are."""
MEMORY_FRACTIONS: Final = (0.94, 0.94, 0.1, 0.05, 0.035, 0.025)


def dense_model(random: Random) -> Workload:
    """Return a model of equal decoder layers."""
    heads = random.choice([4, 6, 8])
    config = {
        "model_type": "llama",
        "hidden_size": 128 * heads,
        "intermediate_size": random.choice([2, 4]) * 128 * heads,
        "num_hidden_layers": random.choice([1, 2, 2, 3, 3, 4]),
        "num_attention_heads": heads,
        "num_key_value_heads": random.choice([2, heads]),
        "vocab_size": random.choice([1024, 32000]),
        "tie_word_embeddings": random.random() < 0.5,
    }
    return workload_from_config(config)


def expert_model(random: Random) -> Workload:
    """Return a mixture of experts: every layer has them, or all but the first."""
    experts = random.choice([2, 3, 4, 6])
    config: dict[str, object] = {
        "hidden_size": 512,
        "num_attention_heads": 4,
        "num_key_value_heads": random.choice([2, 4]),
        "intermediate_size": 1024,
        "vocab_size": 1024,
        "num_hidden_layers": random.choice([1, 2, 2]),
        "num_experts_per_tok": random.choice([1, 2]),
    }
    if random.random() < 0.6:
        return workload_from_config({**config, "model_type": "mixtral", "num_local_experts": experts})
    mixed = {
        "model_type": "qwen2_moe",
        "num_hidden_layers": random.choice([2, 3]),
        "num_experts": experts,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "mlp_only_layers": [0],
    }
    return workload_from_config({**config, **mixed})


def small_cluster(random: Random, system: str, *, most: int) -> Cluster:
    """Return a few devices of a system: one node, or several."""
    nodes, per_node = random.choice([shape for shape in SHAPES if shape[0] * shape[1] <= most])
    (group,) = cluster_from_preset(system, 16).node_groups
    inner, outer = group.levels
    return Cluster(name="small", node_groups=(_resized(group, nodes, per_node, inner, outer),))


def _resized(group: NodeGroup, nodes: int, per_node: int, inner: Level, outer: Level) -> NodeGroup:
    levels = [replace(inner, devices=per_node)] if per_node > 1 or nodes == 1 else []
    if nodes > 1:
        levels.append(replace(outer, devices=nodes * per_node))
    return replace(group, num_nodes=nodes, devices_per_node=per_node, levels=tuple(levels))


def some_constraints(random: Random) -> Constraints:
    """Return how much memory may be used, and now and then something fixed or bounded."""
    fixed: dict[str, object] = {}
    bounds: dict[str, tuple[float, float]] = {}
    match random.randrange(10):
        case 0:
            word = random.choice(["tensor_parallel", "pipeline_parallel", "micro_batch_size", "zero_stage"])
            fixed[word] = random.choice([1, 2])
        case 1:
            fixed["recompute"] = random.choice(list(RecomputeMode))
        case 2:
            bounds[random.choice(["pipeline_parallel", "data_parallel", "num_micro_batches"])] = (2, 4)
    fraction = random.choice(MEMORY_FRACTIONS)
    return Constraints(fixed=fixed, bounds=bounds, forbid=("offload",), memory_fraction=fraction)


def some_consents(number: int) -> tuple[str, ...]:
    """Return what the caller consents to: now and then that less is sent than frameworks do by default."""
    return ("quantized_communication",) if number % CONSENTING == 0 else ()


def some_training(number: int) -> Trainable:
    """Return what is trained: everything, or now and then both ends alone, whose replicas exchange little."""
    return Trainable(frozen=("decoder",)) if number % HALF_FROZEN == 0 else Trainable()


def small_request(number: int) -> PlanRequest:
    """Return the request of a number, always the same."""
    random = Random(number)  # noqa: S311 - the same every time, and no secret
    system = random.choice(SYSTEMS)
    framework = random.choice([*FRAMEWORKS, "any", "any", "megatron-core", "pytorch"])
    has_experts = random.random() < EXPERTS and framework not in WITHOUT_EXPERTS
    workload = expert_model(random) if has_experts else dense_model(random)
    # Experts have two axes of their own: few devices leave enough to try.
    most = 4 if has_experts and random.random() < 0.9 else 8
    cluster = small_cluster(random, system, most=most)
    request = PlanRequest(
        workload=workload,
        cluster=cluster,
        job=Job(
            global_batch_size=random.choice([1, 2, 3, 4, 6, 8]),
            sequence_length=random.choice([256, 512, 768, 2048]),
            framework=framework,
            precision=random.choice([Precision.BF16, Precision.BF16, Precision.FP32]),
            attention=random.choice([AttentionKind.FLASH, AttentionKind.FLASH, AttentionKind.UNFUSED]),
            trainable=some_training(number),
        ),
        constraints=replace(some_constraints(random), allow=some_consents(number)),
        solver=SolverLimits(time_limit_seconds=600),
        profiles=(builtin_profile(f"{system}/published"),),
    )
    opens = has_experts and not _tries_sets(request)
    return _with_one_mode(request, number) if opens else request


def _tries_sets(request: PlanRequest) -> bool:
    """Whether trying every set of modules that may run again takes little, or nothing is to be tried."""
    framework = framework_by_name(request.job.framework)
    if framework.recompute_grain is not Grain.JOB or not framework.limits.recompute_modules:
        return True
    devices, samples = request.cluster.num_devices, request.job.global_batch_size
    layers = sum(run.count for run in request.workload.runs if run.layer.kind == DECODER)
    return devices <= FEW_DEVICES and layers <= FEW_LAYERS and samples <= FEW_SAMPLES


def _with_one_mode(request: PlanRequest, number: int) -> PlanRequest:
    """Return a request with one mode of recomputation for all layers, that of all modules or of none."""
    mode = RecomputeMode.FULL if number % 2 else RecomputeMode.NONE
    constraints = request.constraints
    return replace(request, constraints=replace(constraints, fixed={**constraints.fixed, "recompute": mode}))
