"""A step's time and critical path without playing the rounds of its steady part that repeat.

Exact: equal to `replay.replay` to the nanosecond, in a time that hardly grows with the number of
micro-batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.critical_path import PathCounts, PlayedStep, critical_path
from planner.cost.pipeline import ChunkCosts, PipelineProblem
from planner.cost.played_order import PlayedOrder, play_order
from planner.cost.replay import (
    finish,
    first_starts,
    flight_ns,
    gather_ends,
    gather_floor_ns,
    lanes,
    occupied_ns,
    update_ends,
)
from planner.cost.step_order import step_order


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPath:
    """How long one step takes, and a path through it that takes as long."""

    makespan_ns: int
    path: PathCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEnds:
    """When the parts of one step end that its prediction is read from; whole nanoseconds.

    ``first_chunks`` and ``first_end_ns`` are those of each stage's first pass, ``last_end_ns`` the end of its
    last one.
    """

    costs: tuple[ChunkCosts, ...]
    update_end_ns: tuple[int, ...]
    gather_end_ns: tuple[int, ...]
    first_chunks: tuple[int, ...]
    first_end_ns: tuple[int, ...]
    last_end_ns: tuple[int, ...]
    stage_end_ns: tuple[int, ...]
    makespan_ns: int


def step_ends(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> StepEnds:
    """Play one step and return its ends; ``costs`` holds one entry per chunk, in chunk order.

    Raises ValueError for a shape whose stages would wait for each other for ever.
    """
    updated = update_ends(problem, costs)
    played = _played(problem, costs)
    done = played.done_ns()
    finished = finish(problem, costs, done)
    first = _first_passes(problem, played)
    stages = range(problem.shape.num_stages)
    return StepEnds(
        costs=tuple(costs),
        update_end_ns=tuple(updated),
        gather_end_ns=tuple(gather_ends(problem, costs, updated)),
        first_chunks=tuple(first[stage][0] for stage in stages),
        first_end_ns=tuple(first[stage][1] for stage in stages),
        last_end_ns=tuple(max(done[chunk] for chunk in problem.shape.chunks_of(stage)) for stage in stages),
        stage_end_ns=finished.stage_end_ns,
        makespan_ns=finished.makespan_ns,
    )


def _first_passes(problem: PipelineProblem, played: PlayedOrder) -> dict[int, tuple[int, int]]:
    """Return the chunk and the end of each stage's first pass: none of them comes after a splice."""
    passes, stages = lanes(problem.shape), played.order.stages
    first: dict[int, tuple[int, int]] = {}
    for segment, start in zip(played.order.segments, played.starts, strict=True):
        for position, lane in enumerate(segment.lane):
            chunk = passes[lane][0]
            if stages[chunk] not in first:
                first[stages[chunk]] = (chunk, played.ends_ns[start + position])
        if len(first) == problem.shape.num_stages:
            break
    return first


def play_step(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> StepPath:
    """Play one step; ``costs`` holds one entry per chunk, in chunk order.

    The path is one through the whole step: under other costs the step takes at least its length.
    Raises ValueError for a shape whose stages would wait for each other for ever.
    """
    passes = _played(problem, costs)
    finished = finish(problem, costs, passes.done_ns())
    step = PlayedStep(problem=problem, costs=costs, passes=passes, finish=finished)
    return StepPath(makespan_ns=finished.makespan_ns, path=critical_path(step))


def _played(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> PlayedOrder:
    updated = update_ends(problem, costs)
    gathered = gather_ends(problem, costs, updated)
    passes = lanes(problem.shape)
    return play_order(
        step_order(problem.shape),
        starts_ns=first_starts(problem, updated, gathered),
        work_ns=[occupied_ns(problem, chunk, costs[chunk], kind=kind) for chunk, kind in passes],
        flight_ns=[flight_ns(problem, chunk, kind=kind) for chunk, kind in passes],
        floor_ns=[gather_floor_ns(problem, cost, end) for cost, end in zip(costs, gathered, strict=True)],
    )
