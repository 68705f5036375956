"""The fewest and most layers of each chunk in any plan within a time: rows narrow one another's ranges."""

from dataclasses import dataclass

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.rows import Integers, PathRows, fewest_layers

ROUNDS = 6
"""Rounds of narrowing; more gain little, and fewer are never wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """Fewest and most layers of every chunk, or of every stage."""

    low: Integers
    high: Integers


def whole_box(problem: PipelineProblem, capacity: list[int]) -> Box:
    """Return the ranges that the problem and the stages' memory leave."""
    low = np.array(fewest_layers(problem), dtype=np.int64)
    p = problem.shape.num_stages
    stage_low = low.reshape(-1, p).sum(axis=0)
    spare = np.array(capacity, dtype=np.int64) - stage_low
    high = low + np.minimum(np.tile(spare, problem.shape.virtual_stages), problem.num_layers - low.sum())
    return Box(low=low, high=high)


def narrowed(
    problem: PipelineProblem, box: Box, rows: PathRows, *, capacity: list[int], within_ns: int
) -> Box | None:
    """Return the ranges of chunks in plans that take at most ``within_ns``, None when there is none."""
    weights, limits = _system(problem, rows, capacity, within_ns)
    return narrow(box, weights, limits, problem.num_layers)


def narrow(box: Box, weights: Integers, limits: Integers, num_layers: int) -> Box | None:
    """Return the ranges under ``weights @ layers <= limits`` with all layers placed, None when empty."""
    # All layers are placed somewhere: what every place adds at least is there in any case.
    common = weights.min(axis=1)
    weights = weights - common[:, None]
    limits = limits - common * num_layers
    low, high = box.low, box.high
    for _ in range(ROUNDS):
        slack = limits - weights @ low
        if (slack < 0).any() or low.sum() > num_layers or high.sum() < num_layers or (low > high).any():
            return None
        extra = np.where(weights > 0, slack[:, None] // np.maximum(weights, 1), num_layers).min(axis=0)
        new_high = np.minimum(np.minimum(high, low + extra), num_layers - low.sum() + low)
        new_low = np.maximum(low, num_layers - new_high.sum() + new_high)
        if (new_low == low).all() and (new_high == high).all():
            break
        low, high = new_low, new_high
    return None if (low > high).any() else Box(low=low, high=high)


def _system(
    problem: PipelineProblem, rows: PathRows, capacity: list[int], within_ns: int
) -> tuple[Integers, Integers]:
    """Return weights and limits of ``weights @ layers <= limits``: paths, then memory of stages."""
    weights, limits = rows.least_ns(problem), within_ns - rows.constant_ns + rows.relief_ns.sum(axis=1)
    if problem.shape.virtual_stages == 1:
        return weights, limits
    own = np.tile(np.eye(problem.shape.num_stages, dtype=np.int64), problem.shape.virtual_stages)
    return np.concatenate((weights, own)), np.concatenate((limits, np.array(capacity, dtype=np.int64)))
