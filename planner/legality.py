"""Which plans the model, the cluster and the framework allow; each rule with the nearest legal values."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from planner.cluster import Cluster
from planner.framework import Framework
from planner.job import AttentionKind, Job
from planner.strategy import (
    Batch,
    Layout,
    Mesh,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Violation,
)
from planner.workload.body import Body, body_of
from planner.workload.dispatch import EXPERT_AXIS, EXPERT_TENSOR_AXIS
from planner.workload.layers import Split, Workload

EXPERT_AXES: Final = (EXPERT_AXIS, EXPERT_TENSOR_AXIS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a layout is judged against."""

    workload: Workload
    cluster: Cluster
    job: Job
    framework: Framework
    body: Body = field(init=False, compare=False, repr=False)
    """The workload's chain as stages see it."""
    splits: tuple[Split, ...] = field(init=False, compare=False, repr=False)
    """What the parallel degrees have to divide, over all layers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", body_of(self.workload))
        found = {split: None for run in self.workload.runs for split in run.layer.splits}
        object.__setattr__(self, "splits", tuple(found))

    @property
    def num_layers(self) -> int:
        """Layers that are split over stages."""
        return self.body.num_layers

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Lengths of a sample's sequences: the job's, and the decoder's where it has its own."""
        own = {getattr(getattr(run.layer, "stream", None), "length", None) for run in self.workload.runs}
        return tuple(sorted(length for length in {self.job.sequence_length, *own} if length is not None))

    def splits_over(self, axis: str) -> tuple[Split, ...]:
        """Return what the degree of an axis has to divide."""
        return tuple(split for split in self.splits if split.axis == axis)


def divisors(number: int) -> tuple[int, ...]:
    """Return all divisors of a positive number in ascending order."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def nearest_values(value: int, legal: Iterable[int], *, limit: int = 3) -> tuple[int, ...]:
    """Return up to ``limit`` legal values nearest to ``value`` (by ratio), in ascending order."""
    target = max(value, 1)
    ranked = sorted(legal, key=lambda other: (max(other, target) / max(min(other, target), 1), other))
    return tuple(sorted(ranked[:limit]))


def degree_is_legal(setting: Setting, axis: str, degree: int) -> bool:
    """Whether everything that an axis splits comes out even."""
    return all(split.allows(degree) for split in setting.splits_over(axis))


def legal_degrees(setting: Setting, axis: str) -> tuple[int, ...]:
    """Return every degree of an axis that the model allows, in ascending order.

    Where nothing bounds it the number of devices does.
    """
    pieces = [split.pieces for split in setting.splits_over(axis) if not split.replicate]
    candidates = divisors(min(pieces, default=setting.cluster.num_devices))
    return tuple(degree for degree in candidates if degree_is_legal(setting, axis, degree))


def legal_tensor_parallel(setting: Setting) -> tuple[int, ...]:
    """Return every tensor-parallel degree that the model allows."""
    return legal_degrees(setting, "tensor_parallel")


def sequence_is_legal(setting: Setting, layout: Layout) -> bool:
    """Whether the sequence splits over context parallel (two pieces a rank) and sequence parallel."""
    mesh = layout.mesh
    pieces = 2 * mesh.context_parallel if mesh.context_parallel > 1 else 1
    shards = mesh.tensor_parallel if mesh.sequence_parallel else 1
    return all(
        length % pieces == 0 and (length // mesh.context_parallel) % shards == 0
        for length in setting.sequence_lengths
    )


def batch_is_legal(setting: Setting, layout: Layout) -> bool:
    """Whether micro-batch size, micro-batches and data parallel make up the global batch."""
    samples = layout.batch.micro_batch_size * layout.batch.num_micro_batches * layout.mesh.data_parallel
    return samples == setting.job.global_batch_size and layout.batch.num_micro_batches > 0


def layout_violations(setting: Setting, layout: Layout) -> tuple[Violation, ...]:
    """Return every rule that a layout breaks, as pointers into the plan."""
    return tuple(violation for rule in _RULES for violation in rule(setting, layout))


def _positive_degrees(_setting: Setting, layout: Layout) -> Iterator[Violation]:
    mesh = layout.mesh
    for word in (
        "data_parallel",
        "tensor_parallel",
        "context_parallel",
        "pipeline_parallel",
        *EXPERT_AXES,
    ):
        if getattr(mesh, word) < 1:
            yield Violation(pointer=f"/plan/{word}", rule=f"{word} must be at least 1", nearest_legal=(1,))


def _tensor_parallel(setting: Setting, layout: Layout) -> Iterator[Violation]:
    yield from _uneven_splits(setting, "tensor_parallel", layout.mesh.tensor_parallel)


def _uneven_splits(setting: Setting, axis: str, degree: int) -> Iterator[Violation]:
    """Check that the degree of an axis divides what it splits."""
    if degree < 1 or degree_is_legal(setting, axis, degree):
        return
    splits = setting.splits_over(axis)
    divided = [f"{split.pieces} ({split.name})" for split in splits if not split.replicate]
    copied = [f"{split.pieces} ({split.name})" for split in splits if split.replicate]
    rule = f"{axis} ({degree}) must divide {_listed(divided)}"
    if copied:
        rule += f", and divide or be a multiple of {_listed(copied)}"
    yield Violation(
        pointer=f"/plan/{axis}",
        rule=rule,
        nearest_legal=nearest_values(degree, legal_degrees(setting, axis)),
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _sequence(setting: Setting, layout: Layout) -> Iterator[Violation]:
    context = layout.mesh.context_parallel
    yield from _uneven_splits(setting, "context_parallel", context)
    if context > 1 and not setting.sequence_lengths:
        rule = f"the samples of {setting.workload.name} hold no sequence to split"
        yield Violation(pointer="/plan/context_parallel", rule=rule, nearest_legal=(1,))
    for length in setting.sequence_lengths:
        yield from _uneven_sequence(setting, layout, length)
    if context > 1 and setting.job.attention is not AttentionKind.FLASH:
        yield Violation(
            pointer="/plan/context_parallel",
            rule="context parallelism needs the fused attention core: the ring merges its partial results",
            nearest_legal=(1,),
        )


def _uneven_sequence(setting: Setting, layout: Layout, length: int) -> Iterator[Violation]:
    context, degree = layout.mesh.context_parallel, layout.mesh.tensor_parallel
    if context > 1 and length % (2 * context):
        legal = [c for c in divisors(length) if c == 1 or length % (2 * c) == 0]
        yield Violation(
            pointer="/plan/context_parallel",
            rule=f"the sequence length ({length}) must be a multiple of 2 x context_parallel "
            f"({2 * context}): every rank takes two pieces",
            nearest_legal=nearest_values(context, legal),
        )
    elif context >= 1 and layout.mesh.sequence_parallel and (length // context) % max(degree, 1):
        legal = [t for t in legal_tensor_parallel(setting) if (length // context) % t == 0]
        yield Violation(
            pointer="/plan/tensor_parallel",
            rule=f"sequence parallelism needs a sequence ({length // context} tokens per rank) that "
            f"tensor_parallel ({degree}) divides",
            nearest_legal=nearest_values(degree, legal),
        )


def _world(setting: Setting, layout: Layout) -> Iterator[Violation]:
    world, available = layout.mesh.world_size, setting.cluster.num_devices
    if 1 <= world <= available:
        return
    model_parallel = max(world // max(layout.mesh.data_parallel, 1), 1)
    yield Violation(
        pointer="/plan/data_parallel",
        rule=f"the plan's degrees multiply to {world} devices, the cluster has {available}",
        nearest_legal=nearest_values(layout.mesh.data_parallel, divisors(max(available // model_parallel, 1)))
        if model_parallel <= available
        else (),
    )


def _batch(setting: Setting, layout: Layout) -> Iterator[Violation]:
    size, total, data = (
        layout.batch.micro_batch_size,
        setting.job.global_batch_size,
        layout.mesh.data_parallel,
    )
    if size < 1 or data < 1 or batch_is_legal(setting, layout):
        if size < 1:
            yield Violation(
                pointer="/plan/micro_batch_size",
                rule="micro_batch_size must be at least 1",
                nearest_legal=(1,),
            )
        return
    if total % data:
        most = max(setting.cluster.num_devices * data // layout.mesh.world_size, 1)
        yield Violation(
            pointer="/plan/data_parallel",
            rule=f"data_parallel ({data}) must divide the global batch ({total})",
            nearest_legal=nearest_values(data, [d for d in divisors(total) if d <= most]),
        )
        return
    yield Violation(
        pointer="/plan/micro_batch_size",
        rule=f"micro_batch_size ({size}) x data_parallel ({data}) x num_micro_batches "
        f"({layout.batch.num_micro_batches}) must make the global batch ({total})",
        nearest_legal=nearest_values(size, divisors(total // data)),
    )


def _pipeline(setting: Setting, layout: Layout) -> Iterator[Violation]:
    stages, chunks, layers = layout.mesh.pipeline_parallel, layout.schedule.virtual_stages, setting.num_layers
    if chunks < 1:
        yield Violation(
            pointer="/plan/virtual_stages", rule="virtual_stages must be at least 1", nearest_legal=(1,)
        )
        return
    if stages * chunks > layers + _spare_ends(setting):
        word = "virtual_stages" if chunks > 1 else "pipeline_parallel"
        most = max((layers + _spare_ends(setting)) // (stages if chunks > 1 else 1), 1)
        yield Violation(
            pointer=f"/plan/{word}",
            rule=f"{stages} stages of {chunks} chunks need more layers than the model's {layers}",
            nearest_legal=(most,),
        )


def _spare_ends(setting: Setting) -> int:
    """Chunks that may hold no decoder layer: the embedding's and the head's."""
    return 2 if setting.framework.empty_ends else 0


def _schedule(setting: Setting, layout: Layout) -> Iterator[Violation]:
    schedule, mesh = layout.schedule, layout.mesh
    if schedule.name not in setting.framework.schedules:
        yield Violation(
            pointer="/plan/schedule",
            rule=f"{setting.framework.name} has no {schedule.name} schedule",
            nearest_legal=tuple(name.value for name in setting.framework.schedules),
        )
    interleaved = schedule.name is ScheduleName.INTERLEAVED
    if interleaved != (schedule.virtual_stages > 1):
        yield Violation(
            pointer="/plan/virtual_stages",
            rule=f"the {schedule.name} schedule runs {'several chunks' if interleaved else 'one chunk'} "
            f"per stage, not {schedule.virtual_stages}",
            nearest_legal=(2,) if interleaved else (1,),
        )
    if interleaved and mesh.pipeline_parallel < 2:  # noqa: PLR2004 - two stages make a pipeline
        yield Violation(
            pointer="/plan/virtual_stages",
            rule="virtual stages need a pipeline of at least two stages",
            nearest_legal=(1,),
        )
    elif interleaved:
        yield from _interleaving(setting, layout)


def interleaving_fits(setting: Setting, mesh: Mesh, batch: Batch, schedule: Schedule) -> bool:
    """Whether the micro-batches fill the groups in which chunks take turns."""
    stages, passes = mesh.pipeline_parallel, batch.num_micro_batches
    group = schedule.interleave_group_size or stages
    starved = setting.framework.interleaving_needs_full_groups and 0 < passes % group < stages
    return passes >= stages and not starved


def _interleaving(setting: Setting, layout: Layout) -> Iterator[Violation]:
    stages, passes = layout.mesh.pipeline_parallel, layout.batch.num_micro_batches
    group = layout.schedule.interleave_group_size or stages
    if group < stages or group > max(passes, stages):
        yield Violation(
            pointer="/plan/interleave_group_size",
            rule=f"interleave_group_size ({group}) must lie between the {stages} stages and the {passes} "
            "micro-batches",
            nearest_legal=(stages,),
        )
    elif not interleaving_fits(setting, layout.mesh, layout.batch, layout.schedule):
        yield Violation(
            pointer="/plan/virtual_stages",
            rule=f"interleaving {stages} stages needs the micro-batches ({passes}) to fill groups of {group}",
            nearest_legal=(1,),
        )


def _framework_axes(setting: Setting, layout: Layout) -> Iterator[Violation]:
    """Check that the framework has the axes that a mesh uses."""
    framework = setting.framework
    for word in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        if getattr(layout.mesh, word) > 1 and not getattr(framework, word):
            yield Violation(
                pointer=f"/plan/{word}", rule=f"{framework.name} has no {word}", nearest_legal=(1,)
            )


def _sharding(setting: Setting, layout: Layout) -> Iterator[Violation]:
    stage = layout.sharding.zero_stage
    if stage not in setting.framework.zero_stages:
        yield Violation(
            pointer="/plan/zero_stage",
            rule=f"{setting.framework.name} has no ZeRO stage {stage.value}",
            nearest_legal=nearest_values(
                stage.value, [legal.value for legal in setting.framework.zero_stages]
            ),
        )
    elif layout.mesh.pipeline_parallel > 1 and stage not in setting.framework.pipeline_zero_stages:
        legal = [entry.value for entry in setting.framework.pipeline_zero_stages]
        yield Violation(
            pointer="/plan/zero_stage",
            rule=f"{setting.framework.name} runs no pipeline with ZeRO stage {stage.value}",
            nearest_legal=nearest_values(stage.value, legal),
        )
    replicas = layout.mesh.data_parallel * layout.mesh.context_parallel
    for word in ("parameters", "gradients", "optimizer"):
        size = getattr(layout.sharding, word)
        if size < 1 or replicas % size:
            yield Violation(
                pointer=f"/plan/sharding/{word}",
                rule=f"a shard group of {size} must divide the {replicas} data and context parallel ranks",
                nearest_legal=nearest_values(size, divisors(max(replicas, 1))),
            )


def _experts(setting: Setting, layout: Layout) -> Iterator[Violation]:
    mesh, framework = layout.mesh, setting.framework
    for word in EXPERT_AXES:
        degree = getattr(mesh, word)
        if degree > 1 and not setting.splits_over(word):
            rule = f"{setting.workload.name} has no experts to spread"
            yield Violation(pointer=f"/plan/{word}", rule=rule, nearest_legal=(1,))
        elif degree > 1 and not getattr(framework, word):
            yield Violation(
                pointer=f"/plan/{word}", rule=f"{framework.name} has no {word}", nearest_legal=(1,)
            )
        else:
            yield from _uneven_splits(setting, word, degree)
    yield from _expert_ranks(mesh)
    if not experts_allow(framework, mesh):
        rule = f"{framework.name} runs experts beside tensor parallelism with sequence parallelism only"
        yield Violation(pointer="/plan/sequence_parallel", rule=rule, nearest_legal=(True,))


def experts_allow(framework: Framework, mesh: Mesh) -> bool:
    """Whether a framework runs expert parallelism beside the mesh's kind of tensor parallelism."""
    both = mesh.expert_parallel > 1 and mesh.tensor_parallel > 1
    return not (both and framework.experts_need_sequence_parallel and not mesh.sequence_parallel)


def _expert_ranks(mesh: Mesh) -> Iterator[Violation]:
    """Check that expert groups tile the ranks of a stage."""
    ranks, degree = mesh.replicas * mesh.tensor_parallel, mesh.expert_parallel
    other = mesh.expert_tensor_parallel
    if min(ranks, degree, other) < 1 or ranks % (degree * other) == 0:
        return
    yield Violation(
        pointer="/plan/expert_parallel",
        rule=f"expert_parallel ({degree}) x expert_tensor_parallel ({other}) must divide the {ranks} ranks "
        "of a stage (data x context x tensor parallel)",
        nearest_legal=nearest_values(degree, [d for d in divisors(ranks) if ranks % (d * other) == 0]),
    )


def _recompute(setting: Setting, layout: Layout) -> Iterator[Violation]:
    legal = {option.mode for option in setting.framework.recompute}
    for option in layout.recompute:
        if option.mode not in legal:
            yield Violation(
                pointer="/plan/recompute",
                rule=f"{setting.framework.name} cannot recompute {option.mode}",
                nearest_legal=tuple(sorted(mode.value for mode in legal)),
            )
        for module in option.modules:
            if option.mode is RecomputeMode.SELECTIVE and module not in _RECOMPUTABLE:
                yield Violation(
                    pointer="/plan/recompute",
                    rule=f"no module {module!r} can be recomputed on its own",
                    nearest_legal=_RECOMPUTABLE,
                )


_RECOMPUTABLE = ("core_attention",)

_RULES: tuple[Callable[[Setting, Layout], Iterator[Violation]], ...] = (
    _positive_degrees,
    _tensor_parallel,
    _sequence,
    _world,
    _batch,
    _pipeline,
    _schedule,
    _framework_axes,
    _sharding,
    _experts,
    _recompute,
)
