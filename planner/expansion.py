"""Plans in and out of the planner's own terms: a layout and how many layers each chunk runs how."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from planner.cost.geometry import stage_devices
from planner.cost.pipeline import Assignment
from planner.errors import InvalidRequest
from planner.framework import Framework
from planner.legality import Setting, divisors, nearest_values
from planner.strategy import (
    Batch,
    Chunk,
    DeviceRange,
    LayerOffload,
    LayerRange,
    Layout,
    Mesh,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Sharding,
    ShortPlan,
    Stage,
    StagePlacement,
    TrainingPlan,
    Violation,
    ZeroStage,
)

RECOMPUTE_ORDER = (RecomputeMode.NONE, RecomputeMode.SELECTIVE, RecomputeMode.FULL)


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedPlan:
    """A plan that a caller fixed: its layout, and its layers where they can be placed at all."""

    layout: Layout
    assignment: Assignment | None
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


def even_split(num_layers: int, num_chunks: int) -> tuple[int, ...]:
    """Return layers per chunk as even as they go, the longer chunks first."""
    share, longer = divmod(num_layers, num_chunks)
    return tuple(share + (chunk < longer) for chunk in range(num_chunks))


def expand_short_plan(short: ShortPlan, setting: Setting) -> FixedPlan:
    """Return what a flat plan means, the framework's defaults filled in."""
    mesh = _short_mesh(short, setting)
    replicas = max(mesh.data_parallel * mesh.context_parallel, 1)
    schedule = _short_schedule(short, mesh)
    layout = Layout(
        mesh=mesh,
        batch=_short_batch(short, mesh, setting),
        schedule=schedule,
        sharding=short.sharding or _short_sharding(short, replicas, setting.framework),
        recompute=(with_modules(short.recompute or Recompute(), setting.framework),),
    )
    layers, violations = _short_layers(short, layout, setting)
    assignment = tuple((count,) for count in layers) if layers else None
    return FixedPlan(layout=layout, assignment=assignment, violations=violations)


def with_modules(recompute: Recompute, framework: Framework) -> Recompute:
    """Return selective recomputation with the modules that the framework takes where none are named."""
    if recompute.mode is not RecomputeMode.SELECTIVE or recompute.modules:
        return recompute
    usual = [option for option in framework.recompute if option.mode is RecomputeMode.SELECTIVE]
    return usual[0] if usual else recompute


def _short_batch(short: ShortPlan, mesh: Mesh, setting: Setting) -> Batch:
    samples = short.micro_batch_size * mesh.data_parallel
    passes = setting.job.global_batch_size // samples if samples > 0 else 0
    given = short.extra.get("num_micro_batches")
    return Batch(
        micro_batch_size=short.micro_batch_size,
        num_micro_batches=passes if given is None else int(str(given)),
    )


def _short_mesh(short: ShortPlan, setting: Setting) -> Mesh:
    model_parallel = short.tensor_parallel * short.context_parallel * short.pipeline_parallel
    data_parallel = short.data_parallel
    if data_parallel is None:
        data_parallel = max(setting.cluster.num_devices // max(model_parallel, 1), 1)
    known = {name: value for name, value in short.extra.items() if name in Mesh.__dataclass_fields__}
    return Mesh(
        data_parallel=data_parallel,
        tensor_parallel=short.tensor_parallel,
        context_parallel=short.context_parallel,
        pipeline_parallel=short.pipeline_parallel,
        expert_parallel=short.expert_parallel,
        sequence_parallel=_short_sequence_parallel(short, setting) and short.tensor_parallel > 1,
        **known,  # type: ignore[arg-type]  # the wire has checked names and types
    )


def _short_sequence_parallel(short: ShortPlan, setting: Setting) -> bool:
    given = short.sequence_parallel
    return setting.framework.default_sequence_parallel if given is None else given


def _short_schedule(short: ShortPlan, mesh: Mesh) -> Schedule:
    given = short.schedule
    virtual_stages = short.virtual_stages or (given.virtual_stages if given else 1)
    group_size = short.extra.get("interleave_group_size") or (given.interleave_group_size if given else None)
    interleaved = virtual_stages > 1 and mesh.pipeline_parallel > 1
    fallback = ScheduleName.INTERLEAVED if interleaved else ScheduleName.ONE_FORWARD_ONE_BACKWARD
    return Schedule(
        name=given.name if given else fallback,
        virtual_stages=virtual_stages,
        interleave_group_size=int(str(group_size)) if group_size else None,
    )


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
    chunks, layers = stages * turns, setting.num_layers
    if stages < 1 or turns < 1:
        return (), ()
    if short.layers_per_stage is not None:
        return _given_layers(short.layers_per_stage, stages=stages, turns=turns, num_layers=layers)
    if layers % chunks and not setting.framework.uneven_by_default:
        word, fixed = ("virtual_stages", stages) if turns > 1 else ("pipeline_parallel", 1)
        legal = [degree for degree in divisors(layers) if layers % (degree * fixed) == 0]
        violation = Violation(
            pointer=f"/plan/{word}",
            rule=f"{layers} layers do not split evenly over {chunks} chunks; "
            "layers_per_stage gives another split",
            nearest_legal=nearest_values(turns if turns > 1 else stages, legal),
        )
        return (), (violation,)
    return even_split(layers, chunks), ()


def _given_layers(
    given: Sequence[int], *, stages: int, turns: int, num_layers: int
) -> tuple[tuple[int, ...], tuple[Violation, ...]]:
    """Return layers per chunk from layers per stage (split over its chunks) or per chunk."""
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
    return tuple(per_stage[stage][turn] for turn in range(turns) for stage in range(stages)), ()


def read_full_plan(plan: TrainingPlan, setting: Setting) -> FixedPlan:
    """Return what a full plan means; layers that are missing, repeated or misplaced are violations."""
    _refuse_unpriced(plan)
    options = _recompute_options(plan, setting.framework)
    layout = Layout(
        mesh=plan.mesh,
        batch=plan.batch,
        schedule=plan.schedule,
        sharding=plan.sharding,
        recompute=options,
    )
    violations = tuple(_chain_violations(plan, setting))
    if violations:
        return FixedPlan(layout=layout, assignment=None, violations=violations)
    assignment = tuple(
        tuple(
            sum(
                layers.count
                for layers in chunk.layers
                if layers.kind == "decoder" and with_modules(layers.recompute, setting.framework) == option
            )
            for option in options
        )
        for chunk in _chunks_in_order(plan)
    )
    return FixedPlan(layout=layout, assignment=assignment)


def _chunks_in_order(plan: TrainingPlan) -> list[Chunk]:
    placed = [(chunk.virtual_stage, stage.stage, chunk) for stage in plan.stages for chunk in stage.chunks]
    return [chunk for _, _, chunk in sorted(placed, key=lambda entry: entry[:2])]


def _recompute_options(plan: TrainingPlan, framework: Framework) -> tuple[Recompute, ...]:
    found = {
        with_modules(layers.recompute, framework)
        for stage in plan.stages
        for chunk in stage.chunks
        for layers in chunk.layers
        if layers.kind == "decoder"
    }
    ranked = sorted(found, key=lambda option: (RECOMPUTE_ORDER.index(option.mode), option.modules))
    return tuple(ranked) or (Recompute(),)


def _refuse_unpriced(plan: TrainingPlan) -> None:
    """Refuse what the plan form can say and the cost model cannot price yet."""
    for stage in plan.stages:
        for number, chunk in enumerate(stage.chunks):
            for index, layers in enumerate(chunk.layers):
                pointer = f"/plan/stages/{stage.stage}/chunks/{number}/layers/{index}"
                for word, differs in (
                    ("offload", layers.offload != LayerOffload()),
                    ("mesh", layers.mesh is not None),
                    ("sharding", layers.sharding is not None),
                    ("of", layers.of is not None),
                ):
                    if differs:
                        raise InvalidRequest(
                            f"a layer's own {word} cannot be priced yet", pointer=f"{pointer}/{word}"
                        )


def _chain_violations(plan: TrainingPlan, setting: Setting) -> list[Violation]:
    """Check that the chunks, in execution order, hold the model's chain exactly once."""
    expected = [(run.layer.kind, index) for run in setting.workload.runs for index in range(run.count)]
    chunks = _chunks_in_order(plan)
    stages, turns = plan.mesh.pipeline_parallel, plan.schedule.virtual_stages
    if len(chunks) != stages * turns:
        rule = f"{stages} stages of {turns} chunks are {stages * turns} chunks, the plan lists {len(chunks)}"
        return [Violation(pointer="/plan/stages", rule=rule, nearest_legal=(stages * turns,))]
    listed = [
        (layers.kind, layers.first + offset)
        for chunk in chunks
        for layers in chunk.layers
        for offset in range(layers.count)
    ]
    if listed == expected:
        return [*_end_violations(chunks)]
    position = next(
        (i for i, (ours, theirs) in enumerate(zip(listed, expected, strict=False)) if ours != theirs),
        min(len(listed), len(expected)),
    )
    wanted = expected[position] if position < len(expected) else None
    found = listed[position] if position < len(listed) else None
    rule = (
        f"layer {position} in execution order must be {_layer_name(wanted)}, "
        f"the plan has {_layer_name(found)}"
    )
    return [Violation(pointer="/plan/stages", rule=rule)]


def _end_violations(chunks: Sequence[Chunk]) -> list[Violation]:
    """Check that what precedes and follows the decoder layers sits in the first and last chunk."""
    kinds = [{layers.kind for layers in chunk.layers} for chunk in chunks]
    misplaced = any("head" in found or "norm" in found for found in kinds[:-1])
    misplaced = misplaced or any("embedding" in found for found in kinds[1:])
    if not misplaced:
        return []
    rule = "the embedding sits in the first chunk, the final norm and the head in the last one"
    return [Violation(pointer="/plan/stages", rule=rule)]


def _layer_name(entry: tuple[str, int] | None) -> str:
    return f"{entry[0]} {entry[1]}" if entry else "nothing"


def full_plan(layout: Layout, assignment: Assignment, setting: Setting) -> TrainingPlan:
    """Return the full form of a layout and an assignment of layers.

    Within a chunk the most recomputed layers come first: equal layers cost the same in any order,
    and this one is canonical.
    """
    stages = layout.mesh.pipeline_parallel
    chunks = _chunk_ranges(layout, assignment, setting)
    return TrainingPlan(
        mesh=layout.mesh,
        batch=layout.batch,
        schedule=layout.schedule,
        sharding=layout.sharding,
        stages=tuple(
            Stage(
                stage=stage,
                placement=(_placement(layout.mesh, stage, setting),),
                chunks=tuple(
                    Chunk(virtual_stage=turn, layers=chunks[turn * stages + stage])
                    for turn in range(layout.schedule.virtual_stages)
                ),
            )
            for stage in range(stages)
        ),
    )


def _placement(mesh: Mesh, stage: int, setting: Setting) -> StagePlacement:
    return StagePlacement(
        node_group=setting.cluster.node_groups[0].name,
        devices=tuple(
            DeviceRange(first=first, count=count, stride=stride)
            for first, count, stride in stage_devices(mesh, stage)
        ),
        data_parallel=mesh.data_parallel,
        tensor_parallel=mesh.tensor_parallel,
        context_parallel=mesh.context_parallel,
    )


def _chunk_ranges(layout: Layout, assignment: Assignment, setting: Setting) -> list[tuple[LayerRange, ...]]:
    kinds = [run.layer.kind for run in setting.workload.runs]
    middle = kinds.index("decoder")
    firsts = [0]
    for counts in assignment:
        firsts.append(firsts[-1] + sum(counts))
    ranges = [
        _decoder_ranges(layout.recompute, counts, first=first)
        for counts, (first, _) in zip(assignment, pairwise(firsts), strict=True)
    ]
    ranges[0] = [*_whole_runs(setting, range(middle)), *ranges[0]]
    ranges[-1] = [*ranges[-1], *_whole_runs(setting, range(middle + 1, len(kinds)))]
    return [tuple(entry) for entry in ranges]


def _whole_runs(setting: Setting, which: Sequence[int]) -> list[LayerRange]:
    runs = setting.workload.runs
    return [LayerRange(kind=runs[i].layer.kind, first=0, count=runs[i].count) for i in which]


def _decoder_ranges(options: Sequence[Recompute], counts: Sequence[int], *, first: int) -> list[LayerRange]:
    ranges: list[LayerRange] = []
    for option, count in reversed(list(zip(options, counts, strict=True))):
        if count:
            ranges.append(LayerRange(kind="decoder", first=first, count=count, recompute=option))
            first += count
    return ranges
