"""The points that the stages of a layout are left with when its step is to stay within a time.

Arrays are indexed [point of a stage, path]; all figures are whole nanoseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.bounds import stage_ranges
from planner.search.capacity import most_layers
from planner.search.rows import Integers, PathRows
from planner.search.stage_points import StagePoint, StagePoints


@dataclass(frozen=True, kw_only=True)
class StageChoices:
    """The points left to one stage, and what each adds to every known path."""

    points: tuple[StagePoint, ...]
    layers: Integers
    lengths_ns: Integers

    @cached_property
    def places(self) -> Mapping[StagePoint, int]:
        """The number of each point."""
        return {point: place for place, point in enumerate(self.points)}

    @cached_property
    def quickest(self) -> Mapping[int, StagePoint]:
        """The point of fewest techniques for each number of layers."""
        found: dict[int, StagePoint] = {}
        for count, point in zip(self.layers.tolist(), self.points, strict=True):
            if count not in found or point.techniques < found[count].techniques:
                found[count] = point
        return found

    def only(self, kept: Integers) -> Self:
        """Return some of the points, by number."""
        if len(kept) == len(self.points):
            return self
        return type(self)(
            points=tuple(self.points[place] for place in kept.tolist()),
            layers=self.layers[kept],
            lengths_ns=self.lengths_ns[kept],
        )


Choices = tuple[StageChoices, ...]
"""What every stage is left with."""


def all_choices(problem: PipelineProblem, rows: PathRows, within_ns: int) -> Choices | None:
    """Return the points that leave a step within a time; None where a stage has none."""
    capacity = most_layers(problem)
    ranges = None if capacity is None else stage_ranges(problem, within_ns, capacity)
    if ranges is None:
        return None
    points = StagePoints(problem)
    found = []
    for stage, (low, high) in enumerate(zip(ranges.low.tolist(), ranges.high.tolist(), strict=True)):
        own = [point for count in range(low, high + 1) for point in points.of(stage, count)]
        if not own:
            return None
        found.append(_choices_of(problem, rows, stage, own))
    return narrowed(tuple(found), problem, rows, within_ns)


def with_path(choices: Choices, problem: PipelineProblem, row: PathRows) -> Choices:
    """Return the same points where another path is known."""
    return tuple(
        StageChoices(
            points=own.points,
            layers=own.layers,
            lengths_ns=np.hstack((own.lengths_ns, point_lengths(problem, row, stage, own.points))),
        )
        for stage, own in enumerate(choices)
    )


def narrowed(choices: Choices, problem: PipelineProblem, rows: PathRows, within_ns: int) -> Choices | None:
    """Drop points whose stage alone makes some path too long, whatever the other stages hold.

    On every path the other stages add at least their least; layers must all be placed, so a stage
    that holds few makes others hold more: both are used until nothing changes.
    """
    while True:
        least = [own.lengths_ns.min(axis=0) for own in choices]
        room = within_ns - rows.constant_ns - np.sum(least, axis=0)
        low, high = [own.layers.min() for own in choices], [own.layers.max() for own in choices]
        spare, missing = problem.num_layers - sum(low), problem.num_layers - sum(high)
        kept = []
        for own, shortest, fewest, most in zip(choices, least, low, high, strict=True):
            fits = (own.lengths_ns <= shortest + room).all(axis=1)
            fits &= (own.layers <= fewest + spare) & (own.layers >= most + missing)
            kept.append(own.only(np.flatnonzero(fits)))
            if not kept[-1].points:
                return None
        if sum(len(own.points) for own in kept) == sum(len(own.points) for own in choices):
            return choices
        choices = tuple(kept)


def point_lengths(
    problem: PipelineProblem, rows: PathRows, stage: int, points: Sequence[StagePoint]
) -> Integers:
    """Return what points of a stage add to each path, in nanoseconds: [point, path]."""
    own = problem.shape.own(stage)
    counts = np.array([point.counts for point in points], dtype=np.int64)
    layers = counts.sum(axis=2)

    def passes(name: str, times: Integers) -> Integers:
        each = np.array([getattr(option, name) for option in problem.options], dtype=np.int64)
        added: Integers = (counts @ each) @ times[:, own].T
        return added

    lengths: Integers = (
        passes("forward_ns", rows.forward)
        + passes("backward_ns", rows.backward)
        + layers @ rows.layer_ns[:, own].T
        - (layers == 0).astype(np.int64) @ rows.relief_ns[:, own].T
    )
    return lengths if rows.weight is None else lengths + passes("weight_ns", rows.weight)


def _choices_of(
    problem: PipelineProblem, rows: PathRows, stage: int, points: Sequence[StagePoint]
) -> StageChoices:
    return StageChoices(
        points=tuple(points),
        layers=np.array([point.num_layers for point in points], dtype=np.int64),
        lengths_ns=point_lengths(problem, rows, stage, points),
    )
