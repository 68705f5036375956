"""The layouts to consider: every legal combination of what is decided before layers are split.

A family is the layouts that differ in their virtual stages and schedule alone: they share every
layer cost, so one cheap bound can rule a whole family out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from planner.errors import IllegalChoice, InvalidRequest
from planner.expansion import zero_sharding
from planner.frameworks import Grain
from planner.job import AttentionKind, Constraints
from planner.legality import (
    Setting,
    divisors,
    layout_violations,
    legal_tensor_parallel,
    nearest_values,
    sequence_is_legal,
)
from planner.names import nearest_names
from planner.strategy import (
    Batch,
    Layout,
    Mesh,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Violation,
    ZeroStage,
)

SEARCHED: Final = (
    "data_parallel",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "sequence_parallel",
    "micro_batch_size",
    "num_micro_batches",
    "schedule",
    "virtual_stages",
    "zero_stage",
    "recompute",
)
"""Words of the flat plan form that a search decides, or takes fixed."""
NOT_SEARCHED: Final[Mapping[str, object]] = {
    "expert_parallel": 1,
    "expert_tensor_parallel": 1,
    "context_parallel_scheme": "ring",
    "all_to_all_degree": 1,
    "rank_order": None,
    "expert_rank_order": None,
    "interleave_group_size": None,
    "sharding": None,
    "reshard_after_forward": None,
    "layers_per_stage": None,
    "offload": None,
}
"""Words that are left at one value (None: the default that follows from the rest)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """The setting and the caller's constraints: which values each dimension may take."""

    setting: Setting
    constraints: Constraints
    num_devices: int = field(default=0)

    def allowed(self, word: str, value: float) -> bool:
        """Whether constraints let a dimension take a value."""
        fixed, bounds = self.constraints.fixed, self.constraints.bounds
        if word in fixed:
            return fixed[word] == value
        low, high = bounds.get(word, (value, value))
        return low <= value <= high

    def fixed(self, word: str) -> object | None:
        """Return the value that the caller fixed, or None."""
        return self.constraints.fixed.get(word)


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Layouts that share mesh, batch, sharding and recomputation; ``base`` runs one chunk per stage."""

    base: Layout
    schedules: tuple[Schedule, ...]

    def layouts(self) -> Iterator[Layout]:
        """Yield the family's layouts, fewest virtual stages first."""
        for schedule in self.schedules:
            yield replace(self.base, schedule=schedule)


def search_space(setting: Setting, constraints: Constraints) -> Space:
    """Return the space of a request; InvalidRequest for words that no search can fix or bound."""
    for section in ("fixed", "bounds"):
        for word in getattr(constraints, section):
            _check_word(word, section=section)
    return Space(setting=setting, constraints=constraints, num_devices=setting.cluster.num_devices)


def _check_word(word: str, *, section: str) -> None:
    if word in SEARCHED:
        return
    pointer = f"/constraints/{section}/{word}"
    if word in NOT_SEARCHED:
        raise InvalidRequest(f"{word} is not searched yet and cannot be constrained", pointer=pointer)
    raise InvalidRequest(
        f"unknown decision {word!r}", pointer=pointer, nearest_legal=nearest_names(word, SEARCHED)
    )


def families(space: Space) -> list[Family]:
    """Return every family with at least one legal layout.

    Raises IllegalChoice when the constraints leave none although the job as such has some.
    """
    found = [
        Family(base=base, schedules=schedules)
        for base in _bases(space)
        if (schedules := tuple(_schedules(space, base)))
    ]
    if not found and (space.constraints.fixed or space.constraints.bounds):
        raise _why_nothing_is_legal(space)
    return found


def dimensions(space: Space) -> dict[str, str]:
    """Return how each dimension of the certificate was decided."""
    words: dict[str, str] = {}
    for word in SEARCHED:
        if word in space.constraints.fixed:
            words[word] = "fixed by user"
        elif word in space.constraints.bounds:
            words[word] = "searched within the user's bounds"
        else:
            words[word] = "searched"
    words["layers_per_stage"] = "searched"
    words["expert_parallel"] = "fixed by the model: it has no experts"
    for word in ("rank_order", "interleave_group_size", "shard_group"):
        words[word] = "not searched: the default"
    words["offload"] = "forbidden by user" if "offload" in space.constraints.forbid else "not searched: none"
    return words | _fixed_by_framework(space, words)


def _fixed_by_framework(space: Space, words: Mapping[str, str]) -> dict[str, str]:
    framework = space.setting.framework
    lone = {
        "schedule": len(framework.schedules) == 1,
        "zero_stage": len(framework.zero_stages) == 1,
        "recompute": len(framework.recompute) == 1,
        "context_parallel": not framework.context_parallel,
    }
    found = {word: "fixed by framework" for word, only in lone.items() if only and words[word] == "searched"}
    if words["recompute"] == "searched" and framework.recompute_grain is Grain.JOB:
        found["recompute"] = "searched, one mode for the whole job as the framework decides it"
    return found


def _bases(space: Space) -> Iterator[Layout]:
    for mesh in _meshes(space):
        for batch in _batches(space, mesh):
            for zero_stage in _zero_stages(space, mesh):
                replicas = mesh.data_parallel * mesh.context_parallel
                for recompute in _recompute_choices(space):
                    yield Layout(
                        mesh=mesh,
                        batch=batch,
                        schedule=Schedule(),
                        sharding=zero_sharding(
                            zero_stage, replicas=replicas, framework=space.setting.framework
                        ),
                        recompute=recompute,
                    )


def _meshes(space: Space) -> Iterator[Mesh]:
    devices, setting = space.num_devices, space.setting
    for tensor in legal_tensor_parallel(setting):
        if devices % tensor or not space.allowed("tensor_parallel", tensor):
            continue
        for context in _context_degrees(space, devices // tensor):
            for pipeline in divisors(devices // tensor // context):
                data = devices // tensor // context // pipeline
                if not space.allowed("pipeline_parallel", pipeline) or not space.allowed(
                    "data_parallel", data
                ):
                    continue
                for sequence in _sequence_parallel(space, tensor):
                    yield Mesh(
                        data_parallel=data,
                        tensor_parallel=tensor,
                        context_parallel=context,
                        pipeline_parallel=pipeline,
                        sequence_parallel=sequence,
                    )


def _context_degrees(space: Space, devices: int) -> list[int]:
    length = space.setting.job.sequence_length
    if not space.setting.framework.context_parallel or space.setting.job.attention is not AttentionKind.FLASH:
        return [1] if space.allowed("context_parallel", 1) else []
    return [
        degree
        for degree in divisors(devices)
        if (degree == 1 or length % (2 * degree) == 0) and space.allowed("context_parallel", degree)
    ]


def _sequence_parallel(space: Space, tensor_parallel: int) -> list[bool]:
    choices = [False] if tensor_parallel == 1 else [False, True]
    return [choice for choice in choices if space.fixed("sequence_parallel") in {None, choice}]


def _batches(space: Space, mesh: Mesh) -> Iterator[Batch]:
    total = space.setting.job.global_batch_size
    if total % mesh.data_parallel:
        return
    per_replica = total // mesh.data_parallel
    for size in divisors(per_replica):
        passes = per_replica // size
        if space.allowed("micro_batch_size", size) and space.allowed("num_micro_batches", passes):
            yield Batch(micro_batch_size=size, num_micro_batches=passes)


def _zero_stages(space: Space, mesh: Mesh) -> list[ZeroStage]:
    alone = mesh.data_parallel * mesh.context_parallel == 1
    legal = (ZeroStage.NONE,) if alone else space.setting.framework.zero_stages
    if alone and space.fixed("zero_stage") is not None:
        legal = space.setting.framework.zero_stages
    return [stage for stage in legal if space.allowed("zero_stage", stage.value)]


def _recompute_choices(space: Space) -> list[tuple[Recompute, ...]]:
    """Return the sets of modes that layers choose from: one mode each where the job decides."""
    framework, fixed = space.setting.framework, space.fixed("recompute")
    options = [option for option in framework.recompute if fixed is None or _names_mode(option, fixed)]
    if fixed is None and space.setting.job.attention is AttentionKind.FLASH:
        # A fused core saves no scores: recomputing it alone costs time and frees next to nothing.
        options = [option for option in options if option.mode is not RecomputeMode.SELECTIVE]
    if not options:
        return []
    return [(option,) for option in options] if framework.recompute_grain is Grain.JOB else [tuple(options)]


def _names_mode(option: Recompute, fixed: object) -> bool:
    return fixed in {option, option.mode}


def _schedules(space: Space, base: Layout) -> Iterator[Schedule]:
    """Yield the schedules and virtual stages that are legal on a base layout."""
    setting = space.setting
    if not sequence_is_legal(setting, base):
        return
    spare = 2 if setting.framework.empty_ends else 0
    most = (setting.num_layers + spare) // base.mesh.pipeline_parallel
    for virtual_stages in range(1, most + 1):
        if not space.allowed("virtual_stages", virtual_stages):
            continue
        for name in setting.framework.schedules:
            schedule = Schedule(name=name, virtual_stages=virtual_stages)
            if _is_considered(space, base, schedule):
                yield schedule


def _is_considered(space: Space, base: Layout, schedule: Schedule) -> bool:
    if (schedule.virtual_stages > 1) != (schedule.name is ScheduleName.INTERLEAVED):
        return False
    fixed = space.fixed("schedule")
    if fixed is not None and fixed not in {schedule.name, schedule}:
        return False
    if fixed is None and base.mesh.pipeline_parallel == 1 and schedule.name is ScheduleName.GPIPE:
        return False  # without stages every schedule is gradient accumulation; 1F1B keeps the least
    return not layout_violations(space.setting, replace(base, schedule=schedule))


def _why_nothing_is_legal(space: Space) -> IllegalChoice:
    """Return the rule that the fixed choices break, with the nearest legal values."""
    fixed = space.constraints.fixed
    for violation in _violations_of(space, _probe(space)):
        word = violation.pointer.removeprefix("/plan/")
        if word in fixed:
            return IllegalChoice(
                violation.rule, pointer=f"/constraints/fixed/{word}", nearest_legal=violation.nearest_legal
            )
    section = "fixed" if fixed else "bounds"
    words = ", ".join(f"{word} = {value}" for word, value in getattr(space.constraints, section).items())
    return IllegalChoice(
        f"no legal plan on {space.num_devices} devices has {words} together",
        pointer=f"/constraints/{section}",
    )


def _violations_of(space: Space, layout: Layout) -> tuple[Violation, ...]:
    found = layout_violations(space.setting, layout)
    return (*found, *_device_violations(space, layout.mesh))


def _device_violations(space: Space, mesh: Mesh) -> Iterator[Violation]:
    for word in ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel"):
        degree = getattr(mesh, word)
        if degree >= 1 and space.num_devices % degree:
            yield Violation(
                pointer=f"/plan/{word}",
                rule=f"{word} ({degree}) must divide the {space.num_devices} devices",
                nearest_legal=nearest_values(degree, divisors(space.num_devices)),
            )


def _probe(space: Space) -> Layout:
    """Return a layout with the fixed choices and the simplest legal rest, to be judged by the rules."""

    def number(word: str, otherwise: int) -> int:
        value = space.fixed(word)
        return value if isinstance(value, int) and not isinstance(value, bool) else otherwise

    tensor, context = number("tensor_parallel", 1), number("context_parallel", 1)
    pipeline = number("pipeline_parallel", 1)
    data = number("data_parallel", 1)
    size = number("micro_batch_size", 1)
    virtual_stages = number("virtual_stages", 1)
    total = space.setting.job.global_batch_size
    passes = number("num_micro_batches", max(total // max(size * data, 1), 1))
    zero_stage = ZeroStage(number("zero_stage", 0)) if number("zero_stage", 0) in range(4) else ZeroStage.NONE
    name = ScheduleName.INTERLEAVED if virtual_stages > 1 else ScheduleName.ONE_FORWARD_ONE_BACKWARD
    fixed_schedule = space.fixed("schedule")
    if isinstance(fixed_schedule, str) and fixed_schedule in list(ScheduleName):
        name = ScheduleName(fixed_schedule)
    recompute = space.fixed("recompute")
    return Layout(
        mesh=Mesh(
            data_parallel=data,
            tensor_parallel=tensor,
            context_parallel=context,
            pipeline_parallel=pipeline,
            sequence_parallel=bool(space.fixed("sequence_parallel")),
        ),
        batch=Batch(micro_batch_size=size, num_micro_batches=passes),
        schedule=Schedule(name=name, virtual_stages=virtual_stages),
        sharding=zero_sharding(
            zero_stage, replicas=max(data * context, 1), framework=space.setting.framework
        ),
        recompute=(recompute,) if isinstance(recompute, Recompute) else (Recompute(),),
    )
