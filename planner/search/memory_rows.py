"""The memory of one stage as rows over its chunks: one for every moment at which it can peak.

Only backward passes need looking at: a forward pass is followed by one that holds as much and works
besides.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.cost.schedules import PipelineShape, memory_moments
from planner.search.orders import compact_shape, forwards_before_first_backward
from planner.search.rows import Integers, fixed_parts
from planner.strategy import ScheduleName


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRows:
    """Moments of a stage: ``kept[moment, turn]`` micro-batches, and whose backward pass runs.

    ``fixed_bytes`` is what a moment holds besides layers and working memory; the layers' share is
    static bytes each, ``kept`` times the saved bytes of their chunk, and ``waiting`` times what it holds of
    micro-batches whose weights have yet to get a gradient.
    """

    kept: Integers
    waiting: Integers
    working_turn: Integers
    fixed_bytes: Integers
    fixed_working: Integers

    def peak_bytes(
        self, saved: Integers, working: Integers, static_bytes: int, *, held: Integers | None = None
    ) -> int:
        """Return the stage's peak: layers' saved, held and working bytes by turn, static bytes in all."""
        busy = np.maximum(working, self.fixed_working)[self.working_turn]
        kept = self.kept @ saved
        if held is not None and self.waiting.any():
            kept = kept + self.waiting @ held
        return int((self.fixed_bytes + kept + busy).max()) + static_bytes


def memory_rows(problem: PipelineProblem, stage: int) -> MemoryRows:
    """Return the moments of a stage."""
    own = fixed_parts(problem)[problem.shape.own(stage)]
    kept, waiting, turns = _moments(compact_shape(problem.shape), stage)
    fixed = problem.base_bytes + sum(part.static_bytes for part in own)
    saved = np.array([part.saved_bytes for part in own], dtype=np.int64)
    held = np.array([part.held_bytes for part in own], dtype=np.int64)
    return MemoryRows(
        kept=kept,
        waiting=waiting,
        working_turn=turns,
        fixed_bytes=fixed + kept @ saved + waiting @ held,
        fixed_working=np.array([part.working_bytes for part in own], dtype=np.int64),
    )


@lru_cache(maxsize=4096)
def _moments(shape: PipelineShape, stage: int) -> tuple[Integers, Integers, Integers]:
    """Return kept and waiting micro-batches by turn at passes that make gradients, and whose turn it is.

    Those alone that no other one of the same turn outweighs.
    """
    if shape.schedule.splits_backward:
        return _moments_apart(shape, stage)
    forward, backward = _turns(shape)
    first = forwards_before_first_backward(shape, stage)
    begun = np.minimum(np.arange(len(backward)) + first, len(forward))
    kept = _counts(forward, shape)[begun] - _counts(backward, shape)[:-1]
    rows, turns = [], []
    for turn in range(shape.virtual_stages):
        heaviest = _heaviest(kept[backward == turn])
        rows.append(heaviest)
        turns += [turn] * len(heaviest)
    found = np.concatenate(rows)
    return found, np.zeros_like(found), np.array(turns, dtype=np.int64)


def _moments_apart(shape: PipelineShape, stage: int) -> tuple[Integers, Integers, Integers]:
    moments = [moment for moment in memory_moments(shape, stage) if moment.backward]
    counts = np.array([(*moment.saved, *moment.waiting) for moment in moments], dtype=np.int64)
    turn = np.array([moment.turn for moment in moments], dtype=np.int64)
    heaviest = [_heaviest(counts[turn == own]) for own in range(shape.virtual_stages)]
    rows = np.concatenate(heaviest)
    turns = np.repeat(np.arange(shape.virtual_stages), [len(own) for own in heaviest])
    return rows[:, : shape.virtual_stages], rows[:, shape.virtual_stages :], turns


def _turns(shape: PipelineShape) -> tuple[Integers, Integers]:
    """Return the turn of every forward and every backward pass of a stage, in order."""
    v, size = shape.virtual_stages, shape.group_size or shape.num_stages
    if shape.schedule is ScheduleName.BREADTH_FIRST:
        size = shape.num_micro_batches
    sizes = [min(size, shape.num_micro_batches - done) for done in range(0, shape.num_micro_batches, size)]
    each = np.repeat(sizes, v)
    ahead = np.tile(np.arange(v, dtype=np.int64), len(sizes))
    return np.repeat(ahead, each), np.repeat(v - 1 - ahead, each)


def _counts(turns: Integers, shape: PipelineShape) -> Integers:
    """Return how many passes of each turn are among the first 0, 1, 2, ... passes."""
    steps = np.zeros((len(turns) + 1, shape.virtual_stages), dtype=np.int64)
    steps[np.arange(len(turns)) + 1, turns] = 1
    return steps.cumsum(axis=0)


def _heaviest(rows: Integers) -> Integers:
    """Return the rows that no other row reaches everywhere."""
    left = np.unique(rows, axis=0)
    left = left[np.argsort(-left.sum(axis=1), kind="stable")]
    kept = []
    while len(left):
        # The row with the largest sum is reached by no other one.
        kept.append(left[0])
        left = left[np.any(left > left[0], axis=1)]
    return np.array(kept, dtype=np.int64)
