"""What it takes to fill a pipeline of several chunks a stage, each stage's layers spread evenly over them.

The more layers a stage holds, the more are in its first chunk, which the stages after it wait for before
their first pass and after their last one.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.bounds import SAFETY, Reals, facts_of, stage_ranges, through_rows
from planner.search.box import Box
from planner.search.capacity import most_layers
from planner.search.rows import fewest_layers
from planner.strategy import ScheduleName

ROUNDS: Final = 6
"""Rounds of narrowing; more gain little, and fewer are never wrong."""
STEPS: Final = (1.01, 1.02, 1.04, 1.08, 1.16, 1.32)
"""How many times its bound a step is tried to be."""
HALVINGS: Final = 3
"""How often what lies between two of them is halved."""


def even_ranges(problem: PipelineProblem, within_ns: int, capacity: Sequence[int]) -> Box | None:
    """Return the layers that each stage may hold within a time and a capacity, None where there is no way.

    Tells more than `stage_ranges` of interleaved schedules of equal layers alone.
    """
    if not fills_evenly(problem):
        return stage_ranges(problem, within_ns, capacity)
    return EvenFill(problem).ranges(within_ns, capacity)


def rules_out_evenly(problem: PipelineProblem, within_ns: int) -> bool:
    """Whether no assignment that is even takes at most ``within_ns``, as far as `even_ranges` tells."""
    capacity = most_layers(problem)
    return capacity is None or even_ranges(problem, within_ns, capacity) is None


def fills_evenly(problem: PipelineProblem) -> bool:
    """Whether stages are filled as `EvenFill` says."""
    return problem.is_uniform and problem.shape.schedule is ScheduleName.INTERLEAVED


class EvenFill:
    """The paths that fill the pipeline up to a stage, stay there for all its passes and drain."""

    def __init__(self, problem: PipelineProblem) -> None:
        """Take an interleaved problem of equal layers."""
        self._problem, self._facts = problem, facts_of(problem)
        self._rows = through_rows(problem, self._facts)
        self._each = np.maximum(self._rows.weights.diagonal(), 1.0)
        self._fewest = np.array(fewest_layers(problem), dtype=np.float64)
        self._fewest = self._fewest.reshape(-1, problem.shape.num_stages).sum(axis=0)

    def ranges(self, within_ns: float, capacity: Sequence[int]) -> Box | None:
        """Return the layers that each stage may hold within a time and a capacity, None for no way.

        A stage needs time for all passes of its layers, and waits for those of the first chunks before it.
        What stages have time for leaves a fewest number of layers to each of the others; those make the later
        ones wait longer, and so on.
        """
        facts, rows, total = self._facts, self._rows, self._problem.num_layers
        low, high = self._fewest, np.array(capacity, dtype=np.float64)
        for _ in range(ROUNDS):
            further = facts.least_fill * np.maximum(self._first_chunks(low) - facts.fewest_fill, 0.0)
            room = within_ns * (1 + SAFETY) - rows.constants - (np.cumsum(further) - further)
            room[1:] -= rows.weights[1:, 0] * low[0]
            high = np.minimum(np.minimum(high, np.floor(room / self._each)), total - low.sum() + low)
            more = np.maximum(low, total - high.sum() + high)
            if (high < more).any() or high.sum() < total or more.sum() > total:
                return None
            if (more == low).all():
                break
            low = more
        return Box(low=low.astype(np.int64), high=high.astype(np.int64))

    def least_ns(self, bound_ns: int) -> int | None:
        """Return a time, at least a bound, that no even assignment undercuts; None where none fits."""
        capacity = most_layers(self._problem)
        if capacity is None:
            return None
        low, high = float(bound_ns), None
        for times in STEPS:
            if self.ranges(bound_ns * times, capacity) is not None:
                high = bound_ns * times
                break
            low = bound_ns * times
        for _ in range(HALVINGS if high is not None else 0):
            assert high is not None
            middle = (low + high) / 2
            if self.ranges(middle, capacity) is None:
                low = middle
            else:
                high = middle
        return int(low)

    def _first_chunks(self, layers: Reals) -> Reals:
        """Return the fewest layers in the first chunk of stages that hold so many, but for the last stage.

        Layers are dealt to the chunk that is lightest, with the ends of the model: of k layers no other of
        the v chunks gets more than the first one holds, what its end weighs and one more.
        """
        v = self._problem.shape.virtual_stages
        weight = np.zeros(len(layers))
        weight[0] = _weight(self._problem)
        return np.ceil((layers - (v - 1) * (weight + 1)) / v)


def _weight(problem: PipelineProblem) -> int:
    """Return how many layers the first chunk's end weighs at most beyond other chunks, rounded."""
    first, times = problem.first, [o.forward_ns + o.backward_ns for o in problem.options]
    end = first.forward_ns + first.backward_ns
    return end // max(min(times), 1) + 1 if end else 0
