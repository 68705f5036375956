"""Why no layout is legal: the rule that the caller's choices break, with the nearest legal values."""

from collections.abc import Iterator
from dataclasses import replace

from planner.communication import RESHARD
from planner.errors import IllegalChoice
from planner.expansion import with_modules, zero_sharding
from planner.legality import layout_violations
from planner.search.offloading import Choice, fixed_choice
from planner.search.sending import FORMATS
from planner.search.space import Space
from planner.strategy import (
    Batch,
    ContextParallelScheme,
    Layout,
    Mesh,
    Recompute,
    Schedule,
    ScheduleName,
    Sharding,
    Violation,
    ZeroStage,
)
from planner.workload.dispatch import EXPERT_AXIS, EXPERT_TENSOR_AXIS


def why_nothing_is_legal(space: Space) -> IllegalChoice:
    """Return the rule that the fixed choices break, with the nearest legal values."""
    fixed = space.constraints.fixed
    for violation in _violations_of(space, _probe(space)):
        word = violation.pointer.removeprefix("/plan/").removeprefix("sharding/")
        if word.partition("/")[0] in fixed:
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
        if degree > space.num_devices:
            yield Violation(
                pointer=f"/plan/{word}",
                rule=f"{word} ({degree}) must be at most the {space.num_devices} devices",
                nearest_legal=(space.num_devices,),
            )


def _scheme(space: Space, context: int) -> ContextParallelScheme:
    """Return the scheme that is fixed, or the framework's own where sequences are split."""
    own = space.setting.framework.limits.context_parallel_schemes
    usual = own[0] if own and context > 1 else ContextParallelScheme.RING
    chosen = space.fixed("context_parallel_scheme")
    return usual if chosen is None else ContextParallelScheme(str(chosen))


def _as_fixed(space: Space, sharding: Sharding) -> Sharding:
    """Return a sharding that sends, and keeps gathered, what is fixed."""
    fixed = {word: space.fixed(word) for word in (*FORMATS, RESHARD) if space.fixed(word) is not None}
    return replace(sharding, **fixed)  # type: ignore[arg-type]  # the wire has checked types


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
    modes = (
        with_modules(recompute, space.setting.framework) if isinstance(recompute, Recompute) else Recompute(),
    )
    sharding = _as_fixed(
        space,
        zero_sharding(zero_stage, replicas=max(data * context, 1), framework=space.setting.framework),
    )
    choice = fixed_choice(space, Choice(sharding=sharding, recompute=modes))
    return Layout(
        mesh=Mesh(
            data_parallel=data,
            tensor_parallel=tensor,
            context_parallel=context,
            pipeline_parallel=pipeline,
            expert_parallel=number(EXPERT_AXIS, 1),
            expert_tensor_parallel=number(EXPERT_TENSOR_AXIS, 1),
            sequence_parallel=bool(space.fixed("sequence_parallel")),
            context_parallel_scheme=_scheme(space, context),
            all_to_all_degree=number("all_to_all_degree", 1),
        ),
        batch=Batch(micro_batch_size=size, num_micro_batches=passes),
        schedule=Schedule(name=name, virtual_stages=virtual_stages),
        sharding=choice.sharding,
        recompute=choice.recompute,
        on_host=choice.on_host,
        activations=choice.activations,
    )
