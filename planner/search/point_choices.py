"""The points that the stages of a layout are left with when its step is to stay within a time.

Arrays are indexed [point of a stage, path]; all figures are whole nanoseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Self, TypeVar

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.capacity import most_layers
from planner.search.even_fill import even_ranges
from planner.search.forced import forced_by_layers
from planner.search.rows import Integers, PathRows
from planner.search.stage_points import StagePoint, StagePoints

Point = TypeVar("Point", bound=StagePoint | int)
"""A point of a stage, or no more of it than its number of layers."""


@dataclass(frozen=True, kw_only=True)
class StageChoices(Generic[Point]):
    """What is left to one stage, and what it adds at least to every known path."""

    points: tuple[Point, ...]
    layers: Integers
    lengths_ns: Integers

    @cached_property
    def places(self) -> Mapping[Point, int]:
        """The number of each point."""
        return {point: place for place, point in enumerate(self.points)}

    def only(self, kept: Integers) -> Self:
        """Return some of the points, by number."""
        if len(kept) == len(self.points):
            return self
        return type(self)(
            points=tuple(self.points[place] for place in kept.tolist()),
            layers=self.layers[kept],
            lengths_ns=self.lengths_ns[kept],
        )


Choices = tuple[StageChoices[StagePoint], ...]
"""What every stage is left with."""


def quickest_points(own: StageChoices[StagePoint]) -> Mapping[int, StagePoint]:
    """Return the point of fewest techniques for each number of layers."""
    found: dict[int, StagePoint] = {}
    for count, point in zip(own.layers.tolist(), own.points, strict=True):
        if count not in found or point.techniques < found[count].techniques:
            found[count] = point
    return found


def all_choices(problem: PipelineProblem, rows: PathRows, within_ns: int) -> Choices | None:
    """Return the points that leave a step within a time; None where a stage has none."""
    capacity = most_layers(problem)
    ranges = None if capacity is None else even_ranges(problem, within_ns, capacity)
    if ranges is None:
        return None
    points = StagePoints(problem)
    bounds = zip(ranges.low.tolist(), ranges.high.tolist(), strict=True)
    every = tuple(_counts_of(problem, points, rows, stage, own) for stage, own in enumerate(bounds))
    if not all(own.points for own in every):
        return None
    counts = narrowed(every, problem, rows, within_ns)
    if counts is None:
        return None
    found = []
    for stage, left in enumerate(counts):
        own = [point for count in left.points for point in points.of(stage, count)]
        if not own:
            return None
        found.append(_choices_of(problem, rows, stage, own))
    return narrowed(tuple(found), problem, rows, within_ns)


def _counts_of(
    problem: PipelineProblem, points: StagePoints, rows: PathRows, stage: int, between: tuple[int, int]
) -> StageChoices[int]:
    """Return the numbers of layers of a stage that may fit, each in its quickest way on every path.

    Where all ways take the same forward, what memory makes backward passes longer counts too.
    """
    own, counts = problem.shape.own(stage), range(between[0], between[1] + 1)
    layers = np.array([points.spread(stage, count) for count in counts[::-1]][::-1], dtype=np.int64)
    least: Integers = np.minimum.reduce(
        [
            rows.forward[:, own] * option.forward_ns
            + rows.backward[:, own] * option.backward_ns
            + (0 if rows.weight is None else rows.weight[:, own] * option.weight_ns)
            for option in problem.options
        ]
    )
    lengths = layers @ (least + rows.layer_ns[:, own]).T
    lengths -= (layers == 0).astype(np.int64) @ rows.relief_ns[:, own].T
    forced_ns, fits = forced_by_layers(problem, stage, layers)
    if len({option.forward_ns for option in problem.options}) == 1:
        lengths += np.outer(forced_ns, rows.backward[:, own].min(axis=1))
    found = StageChoices(points=tuple(counts), layers=np.array(counts, dtype=np.int64), lengths_ns=lengths)
    return found.only(np.flatnonzero(fits))


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


def narrowed(
    choices: tuple[StageChoices[Point], ...], problem: PipelineProblem, rows: PathRows, within_ns: int
) -> tuple[StageChoices[Point], ...] | None:
    """Drop points whose stage alone makes some path too long, whatever the other stages hold.

    On every path the other stages add at least their least, and all layers together at least what a layer
    adds anywhere; layers must all be placed, so a stage that holds few makes others hold more: all of it is
    used until nothing changes.
    """
    common = _common_ns(choices)
    while True:
        beyond = [own.lengths_ns - own.layers[:, None] * common for own in choices]
        least = [own.min(axis=0) for own in beyond]
        room = within_ns - rows.constant_ns - problem.num_layers * common - np.sum(least, axis=0)
        low, high = [own.layers.min() for own in choices], [own.layers.max() for own in choices]
        spare, missing = problem.num_layers - sum(low), problem.num_layers - sum(high)
        kept = []
        for own, lengths, shortest, fewest, most in zip(choices, beyond, least, low, high, strict=True):
            fits = (lengths <= shortest + room).all(axis=1)
            fits &= (own.layers <= fewest + spare) & (own.layers >= most + missing)
            kept.append(own.only(np.flatnonzero(fits)))
            if not kept[-1].points:
                return None
        if sum(len(own.points) for own in kept) == sum(len(own.points) for own in choices):
            return choices
        choices = tuple(kept)


def _common_ns(choices: tuple[StageChoices[Point], ...]) -> Integers:
    """Return what one more layer adds to each path, about, where it adds least; any number is right."""
    slopes = []
    for own in choices:
        low, high = own.layers.min(), own.layers.max()
        if low < high:
            ends = [own.lengths_ns[own.layers == count].min(axis=0) for count in (low, high)]
            slopes.append((ends[1] - ends[0]) // (high - low))
    found: Integers = np.min(slopes, axis=0) if slopes else np.zeros(choices[0].lengths_ns.shape[1], np.int64)
    return found


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
) -> StageChoices[StagePoint]:
    return StageChoices(
        points=tuple(points),
        layers=np.array([point.num_layers for point in points], dtype=np.int64),
        lengths_ns=point_lengths(problem, rows, stage, points),
    )
