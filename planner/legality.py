"""Which plans the model, the cluster and the framework allow; each rule with the nearest legal values.

What the model and the cluster demand stands here, what frameworks add in `planner.framework_rules`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from planner.context_schemes import scheme_violations, sequence_pieces
from planner.framework_rules import framework_violations
from planner.limits import LAYER_MODULES, STATES
from planner.setting import (
    EXPERT_AXES,
    Setting,
    degree_is_legal,
    divisors,
    legal_degrees,
    legal_tensor_parallel,
    nearest_values,
)
from planner.strategy import (
    DEFAULT_RANK_ORDER,
    Layout,
    Mesh,
    Recompute,
    RecomputeMode,
    ScheduleName,
    Sharding,
    Violation,
    expert_order_beside,
)
from planner.workload.layers import Cut, LayerRun
from planner.workload.operators import Module

__all__ = [
    "EXPERT_AXES",
    "Setting",
    "degree_is_legal",
    "divisors",
    "layout_violations",
    "legal_degrees",
    "legal_tensor_parallel",
    "missing_modules",
    "nearest_values",
]


def batch_is_legal(setting: Setting, layout: Layout) -> bool:
    """Whether micro-batch size, micro-batches and data parallel make up the global batch."""
    samples = layout.batch.micro_batch_size * layout.batch.num_micro_batches * layout.mesh.data_parallel
    return samples == setting.job.global_batch_size and layout.batch.num_micro_batches > 0


_DEGREES: Final = ("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel", *EXPERT_AXES)
_MODEL_AXES: Final = ("pipeline_parallel", "tensor_parallel", "context_parallel")
"""The axes that ranks of one replica lie along; of equal degrees the first one is given up."""


def layout_violations(setting: Setting, layout: Layout) -> tuple[Violation, ...]:
    """Return every rule that a layout breaks, as pointers into the plan: the model's, the framework's."""
    found = tuple(violation for rule in _RULES for violation in rule(setting, layout))
    # What is no number of ranks is no matter for a framework.
    return found if _is_nonsense(layout) else (*found, *framework_violations(setting, layout))


def _is_nonsense(layout: Layout) -> bool:
    mesh = layout.mesh
    return layout.schedule.virtual_stages < 1 or any(getattr(mesh, word) < 1 for word in _DEGREES)


def _positive_degrees(_setting: Setting, layout: Layout) -> Iterator[Violation]:
    mesh = layout.mesh
    for word in _DEGREES:
        if getattr(mesh, word) < 1:
            yield Violation(pointer=f"/plan/{word}", rule=f"{word} must be at least 1", nearest_legal=(1,))


def _tensor_parallel(setting: Setting, layout: Layout) -> Iterator[Violation]:
    yield from _uneven_splits(setting, "tensor_parallel", layout.mesh.tensor_parallel)


def _uneven_splits(setting: Setting, axis: str, degree: int) -> Iterator[Violation]:
    """Check that the degree of an axis divides what it splits, whatever the framework."""
    splits = [split for split in setting.model_splits if split.axis == axis]
    if degree < 1 or all(split.allows(degree) for split in splits):
        return
    divided = [f"{split.pieces} ({split.name})" for split in splits if not split.replicate]
    copied = [f"{split.pieces} ({split.name})" for split in splits if split.replicate]
    rule = f"{axis} ({degree}) must divide {_listed(divided)}"
    whole = sorted({split.name for split in splits if split.pieces == 1})
    if whole:
        rule = f"{axis} ({degree}) must be 1: it cannot split the model's {_listed(whole)}"
    elif copied:
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
    yield from scheme_violations(setting, layout.mesh)


def _uneven_sequence(setting: Setting, layout: Layout, length: int) -> Iterator[Violation]:
    mesh = layout.mesh
    context, degree, pieces = mesh.context_parallel, mesh.tensor_parallel, sequence_pieces(mesh)
    if context > 1 and length % pieces:
        each = pieces // context
        legal = [c for c in divisors(length) if c == 1 or length % (each * c) == 0]
        yield Violation(
            pointer="/plan/context_parallel",
            rule=f"the sequence length ({length}) must be a multiple of 2 x context_parallel "
            f"({pieces}): every rank takes two pieces"
            if each > 1
            else f"context_parallel ({context}) must divide the sequence length ({length})",
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
    """Check that the ranks are no more than devices: else replicas, or the largest other degree, must go."""
    mesh, available = layout.mesh, setting.cluster.num_devices
    if 1 <= mesh.world_size <= available:
        return
    ranks = max(mesh.world_size // max(mesh.data_parallel, 1), 1)
    axis = "data_parallel" if ranks <= available else max(_MODEL_AXES, key=lambda axis: getattr(mesh, axis))
    degree = getattr(mesh, axis)
    others = ranks if axis == "data_parallel" else max(ranks // degree, 1)
    yield Violation(
        pointer=f"/plan/{axis}",
        rule=f"the plan's degrees multiply to {mesh.world_size} devices, the cluster has {available}",
        nearest_legal=nearest_values(
            degree,
            [one for one in divisors(max(available // others, 1)) if degree_is_legal(setting, axis, one)],
        )
        if others <= available
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
    name, interleaved = schedule.name, schedule.name is ScheduleName.INTERLEAVED
    if not name.runs(schedule.virtual_stages):
        chunks = {1: "one chunk", 2: "two chunks"}.get(name.most_chunks or 0, "several chunks")
        yield Violation(
            pointer="/plan/virtual_stages",
            rule=f"the {name} schedule runs {chunks} per stage, not {schedule.virtual_stages}",
            nearest_legal=(name.fewest_chunks,),
        )
    if mesh.pipeline_parallel < 2 and (interleaved or name in _PIPELINES_ALONE):  # noqa: PLR2004
        words = "virtual stages need" if interleaved else f"the {name} schedule needs"
        yield Violation(
            pointer="/plan/virtual_stages" if interleaved else "/plan/schedule",
            rule=f"{words} a pipeline of at least two stages",
            nearest_legal=(1,) if interleaved else (ScheduleName.ONE_FORWARD_ONE_BACKWARD.value,),
        )
    elif interleaved:
        yield from _interleaving(layout)
    else:
        yield from _micro_batches(setting, layout)


_PIPELINES_ALONE: Final = (
    ScheduleName.BREADTH_FIRST,
    ScheduleName.ZB_H1,
    ScheduleName.ZB_V,
    ScheduleName.DUALPIPE_V,
)
"""Schedules that are nothing without stages to wait for."""


def _micro_batches(setting: Setting, layout: Layout) -> Iterator[Violation]:
    """Check that a schedule has the micro-batches without which its stages wait for ever."""
    stages, passes = layout.mesh.pipeline_parallel, layout.batch.num_micro_batches
    samples = max(setting.job.global_batch_size // max(layout.mesh.data_parallel, 1), 1)
    schedule, needs, legal = layout.schedule, "", list(divisors(samples))
    if schedule.name is ScheduleName.DUALPIPE_V and passes < 2 * stages:
        needs, legal = f"at least {2 * stages}", [count for count in legal if count >= 2 * stages]
    if schedule.name is ScheduleName.ZB_H1 and schedule.virtual_stages > 1 and passes % stages:
        needs, legal = f"a multiple of {stages}", [count for count in legal if count % stages == 0]
    if needs:
        yield Violation(
            pointer="/plan/num_micro_batches",
            rule=f"{schedule.name} over {stages} stages of {schedule.virtual_stages} chunks needs {needs} "
            f"micro-batches, not {passes}",
            nearest_legal=nearest_values(passes, legal),
        )


def _interleaving(layout: Layout) -> Iterator[Violation]:
    stages, passes = layout.mesh.pipeline_parallel, layout.batch.num_micro_batches
    group = layout.schedule.interleave_group_size or stages
    if group < stages or group > max(passes, stages):
        yield Violation(
            pointer="/plan/interleave_group_size",
            rule=f"interleave_group_size ({group}) must lie between the {stages} stages and the {passes} "
            "micro-batches",
            nearest_legal=(stages,),
        )


def _sharding(_setting: Setting, layout: Layout) -> Iterator[Violation]:
    replicas = layout.mesh.data_parallel * layout.mesh.context_parallel
    for word in STATES:
        size = getattr(layout.sharding, word)
        if size < 1 or replicas % size:
            yield Violation(
                pointer=f"/plan/sharding/{word}",
                rule=f"a shard group of {size} must divide the {replicas} data and context parallel ranks",
                nearest_legal=nearest_values(size, divisors(max(replicas, 1))),
            )
            return
    yield from _nested_groups(layout.sharding)


def _nested_groups(sharding: Sharding) -> Iterator[Violation]:
    """Check that who updates a parameter has it and its gradient: such groups lie in those that update."""
    *others, updated = STATES
    for state in others:
        few, many = getattr(sharding, state), getattr(sharding, updated)
        if many % few:
            yield Violation(
                pointer=f"/plan/sharding/{state}",
                rule=f"a group of {few} that shares {state} must divide that of {many} that shares {updated}",
                nearest_legal=nearest_values(few, divisors(many)),
            )


def _experts(setting: Setting, layout: Layout) -> Iterator[Violation]:
    for word in EXPERT_AXES:
        degree = getattr(layout.mesh, word)
        if degree > 1 and not setting.splits_over(word):
            rule = f"{setting.workload.name} has no experts to spread"
            yield Violation(pointer=f"/plan/{word}", rule=rule, nearest_legal=(1,))
        else:
            yield from _uneven_splits(setting, word, degree)
    yield from _expert_ranks(layout.mesh)
    if setting.has_experts:
        yield from _stages_of_experts(layout.mesh)


def _recompute(setting: Setting, layout: Layout) -> Iterator[Violation]:
    """Check that the modules that are computed again are there; what is no module, frameworks answer."""
    missing = [module for option in layout.recompute for module in missing_modules(setting, option)]
    for module in missing:
        present = _modules(setting)
        yield Violation(
            pointer="/plan/recompute",
            rule=f"no layer of {setting.workload.name} has the module {module.value!r}",
            nearest_legal=tuple(name for name in LAYER_MODULES if Module(name) in present),
        )


def _offload(setting: Setting, layout: Layout) -> Iterator[Violation]:
    """Check that hosts are known to take what is offloaded to them."""
    for group in setting.cluster.node_groups:
        if layout.offloads and group.host is None:
            rule = f"nothing is known of the hosts of node group {group.name}: say its host to offload to it"
            yield Violation(pointer="/plan/offload", rule=rule, nearest_legal=(0.0,))
            return


def missing_modules(setting: Setting, option: Recompute) -> tuple[Module, ...]:
    """Return the modules of selective recomputation that no layer of the model has."""
    wanted = option.modules if option.mode is RecomputeMode.SELECTIVE else ()
    named = [Module(name) for name in wanted if name in set(Module)]
    present = _modules(setting) if named else set()
    return tuple(module for module in named if module not in present)


def _modules(setting: Setting) -> set[Module]:
    """Return the modules of all layers."""
    return _modules_of(setting.workload.runs, min(setting.sequence_lengths, default=1))


@lru_cache(maxsize=64)
def _modules_of(runs: tuple[LayerRun, ...], sequence_length: int) -> set[Module]:
    cut = Cut(micro_batch_size=1, sequence_length=sequence_length)
    return {operator.module for run in runs for operator in run.layer.operators(cut)}


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


def _stages_of_experts(mesh: Mesh) -> Iterator[Violation]:
    """Check that the ranks of a stage are the same whether counted over experts or over all else."""
    if min(getattr(mesh, word) for word in _DEGREES) < 1 or mesh.stages_agree:
        return
    beside = expert_order_beside(mesh.rank_order)
    if replace(mesh, expert_rank_order=beside).stages_agree:
        yield Violation(
            pointer="/plan/expert_rank_order",
            rule=f"experts numbered by {', '.join(mesh.expert_rank_order)} have stages on other devices than "
            f"ranks numbered by {', '.join(mesh.rank_order)}",
            nearest_legal=(list(beside),),
        )
        return
    yield Violation(
        pointer="/plan/rank_order",
        rule=f"ranks numbered by {', '.join(mesh.rank_order)} have the experts' stages on other devices: "
        f"expert_parallel x expert_tensor_parallel ({mesh.expert_parallel * mesh.expert_tensor_parallel}) is "
        f"not tensor_parallel x context_parallel ({mesh.tensor_parallel * mesh.context_parallel})",
        nearest_legal=(list(DEFAULT_RANK_ORDER),),
    )


_RULES: tuple[Callable[[Setting, Layout], Iterator[Violation]], ...] = (
    _positive_degrees,
    _tensor_parallel,
    _sequence,
    _world,
    _batch,
    _pipeline,
    _schedule,
    _sharding,
    _experts,
    _recompute,
    _offload,
)
