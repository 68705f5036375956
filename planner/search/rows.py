"""Paths and memory as linear rows over the layers of each chunk, in whole nanoseconds and bytes.

Arrays are indexed [row, chunk], [row, chunk, option] or [stage row, chunk]; all integers are 64 bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.critical_path import PathCounts
from planner.cost.pipeline import FixedPart, PipelineProblem
from planner.search.paths import stage_paths

Integers = NDArray[np.int64]

PATHS_PER_STAGE: Final = 3
"""Known paths to start with: for each stage the longest few of those that stay there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PathRows:
    """Lengths of paths: constant + passes' durations + ``layer_ns`` per layer, whatever its option.

    ``forward`` and ``backward`` count the passes of each chunk on the path, ``weight`` what is passed of
    gradients of weights by themselves less what is left out of them (None where no schedule parts them); the
    durations of the chunks' fixed parts are in ``constant_ns`` already. A path that may wait for a bucket of
    a chunk has ``relief_ns`` for it: by so much it may be shorter once that chunk holds no layer.
    """

    forward: Integers
    backward: Integers
    layer_ns: Integers
    relief_ns: Integers
    constant_ns: Integers
    weight: Integers | None = None

    def option_ns(self, forward_ns: int, backward_ns: int) -> Integers:
        """Return what a layer adds to each path by chunk, under an option with these durations."""
        return self.forward * forward_ns + self.backward * backward_ns + self.layer_ns

    def least_ns(self, problem: PipelineProblem) -> Integers:
        """Return the least that a layer adds to each path, by chunk, under any option."""
        each = [self.option_ns(option.forward_ns, option.backward_ns) for option in problem.options]
        least: Integers = np.minimum.reduce(each)
        return least

    def lengths_ns(self, forward_ns: Integers, backward_ns: Integers, layers: Integers) -> Integers:
        """Return each path's length when layers add these durations to the chunks' passes."""
        lengths: Integers = (
            self.constant_ns
            + self.forward @ forward_ns
            + self.backward @ backward_ns
            + self.layer_ns @ layers
        )
        return lengths

    def only(self, numbers: Sequence[int]) -> "PathRows":
        """Return some of the rows."""
        chosen = list(numbers)
        return PathRows(
            forward=self.forward[chosen],
            backward=self.backward[chosen],
            layer_ns=self.layer_ns[chosen],
            relief_ns=self.relief_ns[chosen],
            constant_ns=self.constant_ns[chosen],
            weight=None if self.weight is None else self.weight[chosen],
        )


def path_rows(problem: PipelineProblem, paths: Sequence[PathCounts]) -> PathRows:
    """Return paths that no empty chunk shortens as rows; there must be at least one."""
    forward, backward, gather, reduced, optimizer = (
        _counted(paths, name) for name in ("forward", "backward", "gather", "reduce", "optimizer")
    )
    fixed = fixed_parts(problem)
    weight = _counted(paths, "weight") if paths[0].weight else None
    constant = np.array([path.constant_ns for path in paths], dtype=np.int64)
    for counts, name in (
        (forward, "forward_ns"),
        (backward, "backward_ns"),
        (gather, "gather_ns"),
        (reduced, "reduce_ns"),
        (optimizer, "optimizer_ns"),
    ):
        constant = constant + counts @ np.array([getattr(part, name) for part in fixed], dtype=np.int64)
    if weight is not None:
        constant = constant + weight @ np.array([part.weight_ns for part in fixed], dtype=np.int64)
    layer = gather * problem.gather_ns + reduced * problem.reduce_ns + optimizer * problem.optimizer_ns
    return PathRows(
        forward=forward,
        backward=backward,
        layer_ns=layer,
        relief_ns=np.zeros_like(layer),
        constant_ns=constant,
        weight=weight,
    )


def _counted(paths: Sequence[PathCounts], name: str) -> Integers:
    """Return what paths count of one kind, [path, chunk]."""
    counts = [getattr(path, name) for path in paths]
    # Faster than an array of tuples, of which there are thousands.
    return np.fromiter(chain.from_iterable(counts), dtype=np.int64).reshape(len(counts), -1)


def first_rows(problem: PipelineProblem) -> PathRows:
    """Return for each stage the few paths that are longest when layers are spread evenly."""
    paths = [stage_paths(problem, stage) for stage in range(problem.shape.num_stages)]
    rows = path_rows(problem, [path for own in paths for path in own])
    count, option = problem.shape.num_chunks, problem.options[0]
    share = problem.num_layers / count
    lengths = rows.lengths_ns(
        np.full(count, int(share * option.forward_ns)),
        np.full(count, int(share * option.backward_ns)),
        np.full(count, int(share)),
    )
    kept: list[int] = []
    first = 0
    for own in paths:
        order = np.argsort(-lengths[first : first + len(own)], kind="stable")
        kept += (first + order[:PATHS_PER_STAGE]).tolist()
        first += len(own)
    return rows.only(kept)


def replayed_row(problem: PipelineProblem, path: PathCounts, layers: Sequence[int]) -> PathRows:
    """Return the critical path of a plan with so many layers per chunk as a row that holds for all plans.

    A chunk without layers may have nothing to gather or to reduce, and then waits for no bucket.
    """
    row = path_rows(problem, [path])
    buckets = problem.gather_bucket_ns * problem.gather_overlaps
    buckets += problem.reduce_bucket_ns * problem.reduce_overlaps
    relief = [
        buckets if count and not problem.minimum_layers(chunk) else 0 for chunk, count in enumerate(layers)
    ]
    return replace(row, relief_ns=np.array([relief], dtype=np.int64))


def joined(first: PathRows, second: PathRows) -> PathRows:
    """Return the rows of both, in order."""
    return PathRows(
        forward=np.concatenate((first.forward, second.forward)),
        backward=np.concatenate((first.backward, second.backward)),
        layer_ns=np.concatenate((first.layer_ns, second.layer_ns)),
        relief_ns=np.concatenate((first.relief_ns, second.relief_ns)),
        constant_ns=np.concatenate((first.constant_ns, second.constant_ns)),
        weight=None
        if first.weight is None or second.weight is None
        else np.concatenate((first.weight, second.weight)),
    )


def fixed_parts(problem: PipelineProblem) -> list[FixedPart]:
    """Return what every chunk carries besides counted layers, in chunk order."""
    last = problem.shape.num_chunks - 1
    middle = problem.fixed_part(1) if last > 1 else FixedPart()
    return [problem.fixed_part(0), *[middle] * (last - 1), *([problem.fixed_part(last)] if last else [])]


def fewest_layers(problem: PipelineProblem) -> list[int]:
    """Return the fewest layers that each chunk may hold, in chunk order."""
    last = problem.shape.num_chunks - 1
    ends = 0 if problem.empty_ends else 1
    return [ends, *[1] * (last - 1), *([ends] if last else [])]
