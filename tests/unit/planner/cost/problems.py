"""Random pipeline problems for property tests, small enough to enumerate."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from planner.cost.pipeline import Assignment, FixedPart, LayerClass, LayerOption, PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.strategy import Recompute, RecomputeMode, ScheduleName

Part = TypeVar("Part", FixedPart, LayerOption)
durations = st.integers(0, 60)
sizes = st.integers(0, 40)


@st.composite
def shapes(
    draw: st.DrawFn,
    *,
    max_stages: int = 4,
    max_micro_batches: int = 9,
    schedules: Sequence[ScheduleName] = tuple(ScheduleName),
) -> PipelineShape:
    """Draw a schedule with at most four stages and three chunks per stage."""
    stages = draw(st.integers(1, max_stages))
    schedule = draw(st.sampled_from(schedules))
    micro_batches = draw(st.integers(1, max_micro_batches))
    if stages > 1 and schedule in APART:
        return draw(shapes_apart(schedule, stages=stages, micro_batches=micro_batches))
    if schedule is not ScheduleName.INTERLEAVED or stages == 1:
        schedule = (
            ScheduleName.GPIPE if schedule is ScheduleName.GPIPE else ScheduleName.ONE_FORWARD_ONE_BACKWARD
        )
        return PipelineShape(
            schedule=schedule, num_stages=stages, virtual_stages=1, num_micro_batches=micro_batches
        )
    rounds = draw(st.integers(1, 3))
    return PipelineShape(
        schedule=schedule,
        num_stages=stages,
        virtual_stages=draw(st.integers(2, 3)),
        num_micro_batches=rounds * stages,
    )


ALTERNATING = (ScheduleName.GPIPE, ScheduleName.ONE_FORWARD_ONE_BACKWARD, ScheduleName.INTERLEAVED)
"""Schedules that run forward and backward passes in turns after a warm-up."""
APART = (ScheduleName.BREADTH_FIRST, ScheduleName.ZB_H1, ScheduleName.ZB_V, ScheduleName.DUALPIPE_V)
"""Schedules whose passes do not alternate after a warm-up."""


@st.composite
def shapes_apart(
    draw: st.DrawFn, schedule: ScheduleName, *, stages: int, micro_batches: int
) -> PipelineShape:
    """Draw a shape of a zero-bubble or breadth-first schedule with about so many micro-batches."""
    virtual_stages = draw(st.integers(schedule.fewest_chunks, schedule.most_chunks or 3))
    if schedule is ScheduleName.ZB_H1 and virtual_stages > 1:
        micro_batches = -(-micro_batches // stages) * stages
    if schedule is ScheduleName.DUALPIPE_V:
        micro_batches += 2 * stages - 1
    return PipelineShape(
        schedule=schedule,
        num_stages=stages,
        virtual_stages=virtual_stages,
        num_micro_batches=micro_batches,
    )


fixed_parts = st.builds(
    FixedPart,
    forward_ns=durations,
    backward_ns=durations,
    saved_bytes=sizes,
    working_bytes=sizes,
    static_bytes=sizes,
    optimizer_ns=durations,
    gather_ns=durations,
    reduce_ns=durations,
    held_bytes=sizes,
)
layer_options = st.builds(
    LayerOption,
    recompute=st.sampled_from([Recompute(mode=mode) for mode in RecomputeMode]),
    forward_ns=st.integers(1, 60),
    backward_ns=st.integers(1, 90),
    saved_bytes=sizes,
    working_bytes=sizes,
    held_bytes=sizes,
)


@st.composite
def weighted(draw: st.DrawFn, parts: st.SearchStrategy[Part]) -> Part:
    """Draw a part whose gradients of weights take some share of its backward pass."""
    part = draw(parts)
    return replace(part, weight_ns=draw(st.integers(0, part.backward_ns)))


@st.composite
def layer_classes(draw: st.DrawFn, *, max_options: int, min_options: int = 1) -> LayerClass:
    """Draw the layers of one class."""
    return LayerClass(
        options=tuple(draw(st.lists(weighted(layer_options), min_size=min_options, max_size=max_options))),
        static_bytes=draw(sizes),
        optimizer_ns=draw(durations),
        gather_ns=draw(durations),
        reduce_ns=draw(durations),
    )


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    max_stages: int = 4,
    max_layers: int = 10,
    max_options: int = 3,
    schedules: Sequence[ScheduleName] = tuple(ScheduleName),
) -> PipelineProblem:
    """Draw a whole problem; ``num_layers`` always suffices for one layer per chunk."""
    shape = draw(shapes(max_stages=max_stages, schedules=schedules))
    return PipelineProblem(
        shape=shape,
        classes=(draw(layer_classes(max_options=max_options)),),
        sequence=(0,) * draw(st.integers(shape.num_chunks, max(max_layers, shape.num_chunks))),
        every=draw(st.sampled_from([FixedPart(), FixedPart(forward_ns=3, backward_ns=5)])),
        first=draw(weighted(fixed_parts)),
        last=draw(weighted(fixed_parts)),
        transfer_ns=draw(durations),
        transfer_blocks=draw(st.booleans()),
        gather_overlaps=draw(st.booleans()),
        reduce_overlaps=draw(st.booleans()),
        gather_bucket_ns=draw(st.integers(0, 10)),
        reduce_bucket_ns=draw(st.integers(0, 10)),
        barrier_ns=draw(st.integers(0, 10)),
        tied_ns=draw(st.integers(0, 10)),
        base_bytes=draw(sizes),
        limit_bytes=draw(st.integers(50, 1500)),
        empty_ends=draw(st.booleans()),
    )


@st.composite
def apart(draw: st.DrawFn, problem: PipelineProblem) -> PipelineProblem:
    """Draw the same problem with a way of its own from each stage to the next, as between node groups."""
    stages = problem.shape.num_stages
    return replace(problem, boundaries_ns=tuple(draw(st.lists(durations, min_size=stages, max_size=stages))))


@st.composite
def assignments(draw: st.DrawFn, problem: PipelineProblem) -> Assignment:
    """Draw some legal number of layers by option for every chunk (their total is free)."""
    return tuple(
        tuple(draw(st.integers(1 if i == 0 else 0, 3)) for i in range(len(problem.options)))
        for _ in range(problem.shape.num_chunks)
    )
