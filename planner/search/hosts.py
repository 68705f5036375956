"""What the stages of a node keep on its host together, as rows over what their chunks hold."""

import numpy as np

from planner.cost.pipeline import Assignment, PipelineProblem
from planner.search.memory_rows import memory_rows
from planner.search.rows import Integers, fixed_parts


class HostRows:
    """The hosts of one problem whose limit may bind.

    ``kept[chunk]`` micro-batches of a chunk's activations are there at their most, and ``fixed[chunk]`` bytes
    whatever layers it holds.
    """

    def __init__(self, problem: PipelineProblem) -> None:
        self._problem = problem
        stages = problem.shape.num_stages
        self.kept: list[int] = [0] * problem.shape.num_chunks
        for stage in range(stages):
            own = range(problem.shape.num_chunks)[problem.shape.own(stage)]
            most = memory_rows(problem, stage).kept.max(axis=0).tolist()
            for chunk, count in zip(own, most, strict=True):
                self.kept[chunk] = count
        self.fixed: list[int] = [part.host_bytes for part in fixed_parts(problem)]

    def nodes(self) -> list[tuple[dict[int, int], int]]:
        """Return for every kind of node the devices of each chunk on it, and what its layers may keep."""
        shape = self._problem.shape
        found = []
        for node in self._problem.hosts:
            devices = {
                chunk: count for stage, count in node for chunk in range(shape.num_chunks)[shape.own(stage)]
            }
            fixed = sum(count * self.fixed[chunk] for chunk, count in devices.items())
            found.append((devices, self._problem.host_limit_bytes - fixed))
        return found

    def per_layer(self, chunk: int) -> Integers:
        """Return what a layer of a chunk keeps there by its way, as assignments count them."""
        return np.array(
            [
                layers.host_bytes + self.kept[chunk] * option.host_saved_bytes
                for layers in self._problem.classes
                for option in layers.options
            ],
            dtype=np.int64,
        )

    def fits(self, assignment: Assignment) -> bool:
        """Whether the stages of every node fit its host together."""
        held = [int(self.per_layer(chunk) @ np.array(counts)) for chunk, counts in enumerate(assignment)]
        return all(
            sum(count * held[chunk] for chunk, count in devices.items()) <= room
            for devices, room in self.nodes()
        )


def host_rows(problem: PipelineProblem) -> HostRows | None:
    """Return the hosts of a problem; None where their limit never binds."""
    return HostRows(problem) if problem.hosts else None


def fits_hosts(problem: PipelineProblem, assignment: Assignment) -> bool:
    """Whether a plan fits its hosts."""
    return not problem.hosts or HostRows(problem).fits(assignment)
