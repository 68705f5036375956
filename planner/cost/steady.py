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
