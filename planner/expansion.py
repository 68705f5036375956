"""The flat short form of a plan expanded: a layout, the framework's defaults filled in, and its layers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from planner.cluster import Cluster
from planner.cost.pipeline import Assignment
from planner.framework import Framework
from planner.framework_rules import layer_violations
from planner.layer_splits import even_split
from planner.placement import NodeGroups, groups_in_order, largest_data_parallel, named_group
from planner.rules.layers import usual_split
from planner.setting import Setting
from planner.strategy import (
    Batch,
    HostShares,
    Layout,
    Mesh,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Sharding,
    ShortPlan,
    Violation,
    ZeroStage,
    chunk_places,
    expert_order_beside,
)
from planner.workload.body import Body
from planner.workload.dispatch import EXPERT_TENSOR_AXIS


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedPlan:
    """A plan that a caller fixed: its layout, and its layers and stages where they can be placed at all."""

    layout: Layout
    assignment: Assignment | None
    node_groups: NodeGroups = ()
    violations: tuple[Violation, ...] = ()


def zero_sharding(zero_stage: ZeroStage, *, replicas: int, framework: Framework) -> Sharding:
    """Return the shard groups that a ZeRO stage means in a framework, over all replicas.

    Where the parameter itself is the master weight (FSDP), stage 2 rests sharded too and keeps the
    gathered parameters from forward to backward.
    """
    shards_parameters = zero_stage >= ZeroStage.PARAMETERS or (
        zero_stage is ZeroStage.GRADIENTS and not framework.keeps_master_weights
    )
    return Sharding(
        zero_stage=zero_stage,
        parameters=replicas if shards_parameters else 1,
        gradients=replicas if zero_stage >= ZeroStage.GRADIENTS else 1,
        optimizer=replicas if zero_stage >= ZeroStage.OPTIMIZER else 1,
        reshard_after_forward=zero_stage is not ZeroStage.GRADIENTS,
    )


def expand_short_plan(short: ShortPlan, setting: Setting) -> FixedPlan:
    """Return what a flat plan means, the framework's defaults filled in.

    Its stages sit on the node group that it names, or on all groups in their order.
    """
    cluster = named_group(setting.cluster, short.node_group, pointer="/plan/node_group")
    mesh = _short_mesh(short, setting, cluster)
    replicas = max(mesh.data_parallel * mesh.context_parallel, 1)
    schedule = _short_schedule(short, mesh, setting.framework)
    layout = Layout(
        mesh=mesh,
        batch=_short_batch(short, mesh, setting),
        schedule=schedule,
        sharding=short.sharding or _short_sharding(short, replicas, setting.framework),
        recompute=(with_modules(short.recompute or Recompute(), setting.framework),),
        on_host=host_shares(short.offload, setting.framework),
        activations=_short_activations(short),
    )
    layers, violations = _short_layers(short, layout, setting)
    if layers:
        violations = layer_violations(setting, layout, layers)
    assignment = in_classes(layers, setting.body) if layers else None
    placed = groups_in_order(mesh, cluster)
    return FixedPlan(
        layout=layout,
        assignment=assignment,
        node_groups=placed.node_groups,
        violations=(*violations, *placed.violations),
    )


def in_classes(layers: Sequence[int], body: Body) -> Assignment:
    """Return so many layers per chunk by class, where every layer has one way to run."""
    ends = list(accumulate(layers, initial=0))
    found = (Counter(body.sequence[start:end]) for start, end in pairwise(ends))
    return tuple(tuple(counts[number] for number, _ in enumerate(body.classes)) for counts in found)


def with_modules(recompute: Recompute, framework: Framework) -> Recompute:
    """Return selective recomputation of the modules that the framework's names mean.

    Where none are named they are those that the framework takes. Names that mean none stay.
    """
    if recompute.mode is not RecomputeMode.SELECTIVE:
        return recompute
    if recompute.modules:
        found = {framework.limits.module(name) or name: None for name in recompute.modules}
        return replace(recompute, modules=tuple(found))
    usual = [option for option in framework.recompute if option.mode is RecomputeMode.SELECTIVE]
    return usual[0] if usual else recompute


def host_shares(offload: Mapping[str, float], framework: Framework) -> HostShares:
    """Return the shares of all states on the host; those that are not given are as the framework has them."""
    return framework.limits.offload.shares(
        offload.get("optimizer", 0.0),
        parameters=offload.get("parameters"),
        gradients=offload.get("gradients"),
    )


def _short_activations(short: ShortPlan) -> tuple[float, ...]:
    share = short.offload.get("activations", 0.0)
    return (share,) if share else ()


def _short_batch(short: ShortPlan, mesh: Mesh, setting: Setting) -> Batch:
    samples = short.micro_batch_size * mesh.data_parallel
    passes = setting.job.global_batch_size // samples if samples > 0 else 0
    given = short.extra.get("num_micro_batches")
    return Batch(
        micro_batch_size=short.micro_batch_size,
        num_micro_batches=passes if given is None else int(str(given)),
    )


def _short_mesh(short: ShortPlan, setting: Setting, cluster: Cluster) -> Mesh:
    known = {name: value for name, value in short.extra.items() if name in Mesh.__dataclass_fields__}
    known.setdefault(EXPERT_TENSOR_AXIS, _usual_expert_tensor(short, setting))
    if "rank_order" in known:
        known.setdefault("expert_rank_order", expert_order_beside(known["rank_order"]))  # type: ignore[arg-type]  # the wire has checked it
    schemes = setting.framework.limits.context_parallel_schemes
    if short.context_parallel > 1 and schemes:
        known.setdefault("context_parallel_scheme", schemes[0])
    mesh = Mesh(
        tensor_parallel=short.tensor_parallel,
        context_parallel=short.context_parallel,
        pipeline_parallel=short.pipeline_parallel,
        expert_parallel=short.expert_parallel,
        sequence_parallel=_short_sequence_parallel(short, setting) and short.tensor_parallel > 1,
        **known,  # type: ignore[arg-type]  # the wire has checked names and types
    )
    data_parallel = short.data_parallel
    return replace(
        mesh,
        data_parallel=largest_data_parallel(mesh, cluster) if data_parallel is None else data_parallel,
    )


def _usual_expert_tensor(short: ShortPlan, setting: Setting) -> int:
    """Return 1, or the degree that the framework cuts experts into where that is none of its own choices."""
    tensor = setting.framework.limits.experts.tensor
    degrees = tensor.degrees(tensor_parallel=short.tensor_parallel, expert_parallel=short.expert_parallel)
    return degrees[0] if degrees and setting.has_experts else 1


def _short_sequence_parallel(short: ShortPlan, setting: Setting) -> bool:
    if short.sequence_parallel is not None:
        return short.sequence_parallel
    framework = setting.framework
    needs = framework.limits.experts.need_sequence_parallel and setting.has_experts
    return framework.default_sequence_parallel or needs


def _short_schedule(short: ShortPlan, mesh: Mesh, framework: Framework) -> Schedule:
    given = short.schedule
    virtual_stages = short.virtual_stages or _usual_chunks(given, mesh)
    group_size = short.extra.get("interleave_group_size") or (given.interleave_group_size if given else None)
    return Schedule(
        name=given.name if given else _usual_schedule(mesh, virtual_stages, framework),
        virtual_stages=virtual_stages,
        interleave_group_size=int(str(group_size)) if group_size else None,
    )


def _usual_chunks(given: Schedule | None, mesh: Mesh) -> int:
    """Return the chunks per stage of a plan that gives none: two where its schedule folds."""
    if given is None:
        return 1
    folds = given.name.folds and mesh.pipeline_parallel > 1
    return given.name.fewest_chunks if folds and given.virtual_stages == 1 else given.virtual_stages


def _usual_schedule(mesh: Mesh, virtual_stages: int, framework: Framework) -> ScheduleName:
    """Return 1F1B, interleaved where it must be; the framework's own where it has no 1F1B."""
    if virtual_stages > 1 and mesh.pipeline_parallel > 1:
        return ScheduleName.INTERLEAVED
    usual = ScheduleName.ONE_FORWARD_ONE_BACKWARD
    return usual if mesh.pipeline_parallel == 1 or usual in framework.schedules else framework.schedules[0]


def _short_sharding(short: ShortPlan, replicas: int, framework: Framework) -> Sharding:
    if short.zero_stage is not None:
        stage = ZeroStage(short.zero_stage)
    else:
        stage = framework.default_zero_stage if replicas > 1 else ZeroStage.NONE
    usual = zero_sharding(stage, replicas=replicas, framework=framework)
    flat = {word: value for word, value in short.extra.items() if word in Sharding.__dataclass_fields__}
    return replace(usual, **flat)  # type: ignore[arg-type]  # the wire has checked names and types


def _short_layers(
    short: ShortPlan, layout: Layout, setting: Setting
) -> tuple[tuple[int, ...], tuple[Violation, ...]]:
    stages, turns = layout.mesh.pipeline_parallel, layout.schedule.virtual_stages
    layers = setting.num_layers
    if stages < 1 or turns < 1:
        return (), ()
    if short.layers_per_stage is not None:
        return _given_layers(short.layers_per_stage, layout.schedule, stages=stages, num_layers=layers)
    violations = layer_violations(setting, layout, None)
    if violations:
        return (), violations
    return usual_split(setting, layout), ()


def _given_layers(
    given: Sequence[int], schedule: Schedule, *, stages: int, num_layers: int
) -> tuple[tuple[int, ...], tuple[Violation, ...]]:
    """Return layers per chunk from layers per stage (split over its chunks) or per chunk."""
    turns = schedule.virtual_stages
    if len(given) not in {stages, stages * turns} or sum(given) != num_layers or min(given) < 0:
        example = even_split(num_layers, stages)
        rule = (
            f"layers_per_stage must be {stages} counts (or {stages * turns}, one per chunk) "
            f"that add up to {num_layers}"
        )
        return (), (Violation(pointer="/plan/layers_per_stage", rule=rule, nearest_legal=(list(example),)),)
    if len(given) == stages * turns:
        return tuple(given), ()
    per_stage = [even_split(count, turns) for count in given]
    return tuple(per_stage[stage][turn] for turn, stage in chunk_places(schedule, stages=stages)), ()
