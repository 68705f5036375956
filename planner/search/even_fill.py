"""What it takes to fill a pipeline of several chunks a stage, each stage's layers spread evenly over them.

The further layers a stage holds, the more are in its first chunk, which the stages after it wait for before
their first pass and after their last one.
"""

from collections.abc import Sequence

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.bounds import SAFETY, Reals, facts_of, stage_ranges, through_rows
from planner.search.box import Box
from planner.search.capacity import most_layers
from planner.strategy import ScheduleName

ROUNDS = 6
"""Rounds of narrowing; more gain little, and fewer are never wrong."""


def even_ranges(problem: PipelineProblem, within_ns: int, capacity: Sequence[int]) -> Box | None:
    """Return the layers that each stage may hold within a time and a capacity, None where there is no way.

    A stage needs time for all passes of its layers, and waits for those of the first chunks before it. What
    stages have time for leaves a fewest number of layers to each of the others; those make the later ones
    wait longer, and so on. Tells more than `stage_ranges` of interleaved schedules of equal layers alone.
    """
    shape, total = problem.shape, problem.num_layers
    box = stage_ranges(problem, within_ns, capacity)
    if box is None or not problem.is_uniform or shape.schedule is not ScheduleName.INTERLEAVED:
        return box
    facts = facts_of(problem)
    rows = through_rows(problem, facts)
    needed = np.maximum(rows.weights.diagonal(), 1.0)
    low, high = box.low.astype(np.float64), box.high.astype(np.float64)
    for _ in range(ROUNDS):
        further = facts.least_fill * np.maximum(_first_chunks(problem, low) - facts.fewest_fill, 0.0)
        room = within_ns * (1 + SAFETY) - rows.constants - (np.cumsum(further) - further)
        room[1:] -= rows.weights[1:, 0] * low[0]
        high = np.minimum(high, np.floor(room / needed))
        more = np.maximum(low, total - high.sum() + high)
        if (high < more).any() or high.sum() < total or more.sum() > total:
            return None
        if (more == low).all():
            break
        low = more
    return Box(low=low.astype(np.int64), high=high.astype(np.int64))


def _first_chunks(problem: PipelineProblem, layers: Reals) -> Reals:
    """Return the fewest layers in the first chunk of stages that hold so many, but for the last stage.

    Layers are dealt to the chunk that is lightest, with the ends of the model: of k layers no other of the v
    chunks gets more than the first one holds, what its end weighs and one more.
    """
    v = problem.shape.virtual_stages
    weight = np.zeros(len(layers))
    weight[0] = _weight(problem)
    return np.ceil((layers - (v - 1) * (weight + 1)) / v)


def _weight(problem: PipelineProblem) -> int:
    """Return how many layers the first chunk's end weighs at most beyond other chunks, rounded."""
    first, times = problem.first, [o.forward_ns + o.backward_ns for o in problem.options]
    end = first.forward_ns + first.backward_ns
    return end // max(min(times), 1) + 1 if end else 0


def rules_out_evenly(problem: PipelineProblem, within_ns: int) -> bool:
    """Whether no assignment that is even takes at most ``within_ns``, as far as `even_ranges` tells."""
    capacity = most_layers(problem)
    return capacity is None or even_ranges(problem, within_ns, capacity) is None
