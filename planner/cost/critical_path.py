"""A longest path through a played step, as counts of each duration on it."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.pipeline import ChunkCosts, PipelineProblem
from planner.cost.played_order import PlayedOrder
from planner.cost.replay import Finish, lanes, reduce_order, transfer_after_ns
from planner.cost.schedules import FORWARD, WEIGHT
from planner.cost.traced_passes import trace_passes


@dataclass(frozen=True, kw_only=True, slots=True)
class PathCounts:
    """How often each duration lies on a path; the path's length is linear in them.

    Indexed by chunk; ``optimizer`` counts the updates of each chunk's parameters. ``constant_ns``
    is the rest (transfers, barrier, buckets), which no assignment of layers changes. ``weight`` counts the
    parts of backward passes that make gradients of weights: above zero where one is passed by itself, below
    where a backward pass is passed without it; empty where no schedule parts them.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    gather: tuple[int, ...]
    reduce: tuple[int, ...]
    optimizer: tuple[int, ...]
    constant_ns: int
    weight: tuple[int, ...] = ()

    def length_ns(self, costs: Sequence[ChunkCosts]) -> int:
        """Return the path's length under the given durations."""
        return (
            self.constant_ns
            + sum(
                self.forward[c] * cost.forward_ns
                + self.backward[c] * cost.backward_ns
                + self.gather[c] * cost.gather_ns
                + self.reduce[c] * cost.reduce_ns
                + self.optimizer[c] * cost.optimizer_ns
                for c, cost in enumerate(costs)
            )
            + sum(count * cost.weight_ns for count, cost in zip(self.weight, costs, strict=False))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedStep:
    """One step with the ends of all that it does."""

    problem: PipelineProblem
    costs: Sequence[ChunkCosts]
    passes: PlayedOrder
    finish: Finish


def critical_path(played: PlayedStep) -> PathCounts:
    """Return a longest path of a played step; its length is the makespan."""
    return _Walk(played).counts()


class _Walk:
    """Walks a step's graph backwards along tight edges and counts the durations passed."""

    def __init__(self, played: PlayedStep) -> None:
        self._played = played
        self._problem: PipelineProblem = played.problem
        self._done_ns = played.passes.done_ns()
        size = len(played.costs)
        self._passed: Sequence[int] = [0] * played.problem.shape.num_lanes
        self._gather, self._reduce, self._optimizer = [0] * size, [0] * size, [0] * size
        self._constant_ns = 0

    def counts(self) -> PathCounts:
        stage = self._final_stage()
        if self._done_ns[stage] < self._played.finish.stage_end_ns[stage]:
            self._reductions(stage)
        else:
            self._passes(stage)
        size = 2 * len(self._gather)
        backward, inputs = self._passed[1:size:2], self._passed[size::2]
        weight = [alone - less for alone, less in zip(self._passed[size + 1 :: 2], inputs, strict=True)]
        if inputs:
            backward = [whole + part for whole, part in zip(backward, inputs, strict=True)]
        return PathCounts(
            forward=tuple(self._passed[:size:2]),
            backward=tuple(backward),
            weight=tuple(weight),
            gather=tuple(self._gather),
            reduce=tuple(self._reduce),
            optimizer=tuple(self._optimizer),
            constant_ns=self._constant_ns + self._blocked_ns(),
        )

    def _blocked_ns(self) -> int:
        """Return how long the passes on the path keep their stages busy with sending."""
        if not self._problem.transfer_blocks:
            return 0
        return sum(
            count * transfer_after_ns(self._problem, chunk, backward=kind != FORWARD)
            for (chunk, kind), count in zip(lanes(self._problem.shape), self._passed, strict=True)
            if kind != WEIGHT
        )

    def _final_stage(self) -> int:
        ends, makespan = self._played.finish.stage_end_ns, self._played.finish.makespan_ns
        if makespan > max(ends):
            self._constant_ns += self._problem.tied_ns
            return max((0, len(ends) - 1), key=lambda stage: ends[stage])
        return ends.index(makespan)

    def _reductions(self, stage: int) -> None:
        """Walk the chain of reductions of a stage down to the pass that it waited for."""
        order = reduce_order(self._problem, stage)[::-1]
        reduced = self._played.finish.reduce_end_ns
        for chunk, previous in zip(order, [*order[1:], None], strict=True):
            duration = self._played.costs[chunk].reduce_ns
            if not duration:
                continue
            ready = self._done_ns[chunk] + self._problem.reduce_bucket_ns
            if self._problem.reduce_overlaps and reduced[chunk] == ready:
                self._constant_ns += self._problem.reduce_bucket_ns
                self._passes(chunk)
                return
            self._reduce[chunk] += 1
            if self._problem.reduce_overlaps and (
                previous is None or reduced[chunk] - duration > reduced[previous]
            ):
                self._passes(chunk, from_start=True)
                return
        self._passes(stage)

    def _passes(self, chunk: int, *, from_start: bool = False) -> None:
        """Count passes from a chunk's last backward pass, or from its start, to the start of the step."""
        traced = trace_passes(self._played.passes, chunk, from_start=from_start)
        self._passed = traced.passed
        self._constant_ns += traced.flown_ns
        if traced.gathered is None:
            self._step_start(traced.stage)
            return
        self._constant_ns += self._problem.gather_bucket_ns
        self._count_gathers(traced.stage, up_to=traced.gathered)
        self._count_update(traced.stage)

    def _step_start(self, stage: int) -> None:
        """Count what precedes a stage's first pass."""
        if not self._problem.gather_overlaps:
            self._count_gathers(stage, up_to=self._problem.shape.num_chunks - 1)
        self._count_update(stage)

    def _count_gathers(self, stage: int, *, up_to: int) -> None:
        for chunk in self._problem.shape.chunks_of(stage):
            self._gather[chunk] += chunk <= up_to

    def _count_update(self, stage: int) -> None:
        self._constant_ns += self._problem.barrier_ns
        for chunk in self._problem.shape.chunks_of(stage):
            self._optimizer[chunk] += 1
