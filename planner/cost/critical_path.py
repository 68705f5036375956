"""A longest path through a replayed step, as counts of each duration on it."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.pipeline import ChunkCosts, PipelineProblem
from planner.cost.replay import (
    Replay,
    flight_ns,
    gather_floor_ns,
    occupied_ns,
    reduce_order,
    transfer_after_ns,
)
from planner.cost.schedules import Pass, stage_orders


@dataclass(frozen=True, kw_only=True, slots=True)
class PathCounts:
    """How often each duration lies on a path; the path's length is linear in them.

    Indexed by chunk; ``optimizer`` counts the updates of each chunk's parameters. ``constant_ns``
    is the rest (transfers, barrier, buckets), which no assignment of layers changes.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    gather: tuple[int, ...]
    reduce: tuple[int, ...]
    optimizer: tuple[int, ...]
    constant_ns: int

    def length_ns(self, costs: Sequence[ChunkCosts]) -> int:
        """Return the path's length under the given durations."""
        return self.constant_ns + sum(
            self.forward[c] * cost.forward_ns
            + self.backward[c] * cost.backward_ns
            + self.gather[c] * cost.gather_ns
            + self.reduce[c] * cost.reduce_ns
            + self.optimizer[c] * cost.optimizer_ns
            for c, cost in enumerate(costs)
        )


def critical_path(played: Replay) -> PathCounts:
    """Return a longest path of a replayed step; its length is the makespan."""
    return _Walk(played).counts()


class _Walk:
    """Walks a replay's graph backwards along tight edges and counts the durations passed."""

    def __init__(self, played: Replay) -> None:
        self._played = played
        self._problem: PipelineProblem = played.problem
        self._orders = stage_orders(played.problem.shape)
        self._positions = [{step: i for i, step in enumerate(order)} for order in self._orders]
        size = len(played.costs)
        self._forward, self._backward = [0] * size, [0] * size
        self._gather, self._reduce, self._optimizer = [0] * size, [0] * size, [0] * size
        self._constant_ns = 0

    def counts(self) -> PathCounts:
        stage = self._final_stage()
        step = self._orders[stage][-1]
        if self._played.end_ns(step) < self._played.stage_end_ns[stage]:
            self._reductions(stage)
        else:
            self._passes(step)
        return PathCounts(
            forward=tuple(self._forward),
            backward=tuple(self._backward),
            gather=tuple(self._gather),
            reduce=tuple(self._reduce),
            optimizer=tuple(self._optimizer),
            constant_ns=self._constant_ns,
        )

    def _final_stage(self) -> int:
        ends = self._played.stage_end_ns
        if self._played.makespan_ns > max(ends):
            self._constant_ns += self._problem.tied_ns
            return max((0, len(ends) - 1), key=lambda stage: ends[stage])
        return ends.index(self._played.makespan_ns)

    def _reductions(self, stage: int) -> None:
        """Walk the chain of reductions of a stage down to the pass that it waited for."""
        order = reduce_order(self._problem, stage)
        for chunk, previous in zip(order[::-1], [*order[::-1][1:], None], strict=True):
            duration = self._played.costs[chunk].reduce_ns
            if not duration:
                continue
            end = self._played.reduce_end_ns[chunk]
            done = self._played.backward_end_ns[chunk][-1]
            if self._problem.reduce_overlaps and end == done + self._problem.reduce_bucket_ns:
                self._constant_ns += self._problem.reduce_bucket_ns
                self._passes(self._last_backward(chunk))
                return
            self._reduce[chunk] += 1
            if previous is None or end - duration > self._played.reduce_end_ns[previous]:
                self._before_reduction(stage, chunk)
                return
        self._passes(self._orders[stage][-1])

    def _before_reduction(self, stage: int, chunk: int) -> None:
        if self._problem.reduce_overlaps:
            self._before(self._last_backward(chunk))
        else:
            self._passes(self._orders[stage][-1])

    def _last_backward(self, chunk: int) -> Pass:
        return Pass(backward=True, chunk=chunk, micro_batch=self._problem.shape.num_micro_batches - 1)

    def _passes(self, step: Pass | None) -> None:
        """Count passes from one back to the start of the step."""
        while step is not None:
            step = self._count_pass(step)

    def _count_pass(self, step: Pass) -> Pass | None:
        """Count one pass and return the pass that it waited for, None at the start of the step."""
        played, chunk = self._played, step.chunk
        if not step.backward and step.micro_batch == 0 and self._waits_for_gather(chunk):
            return None
        (self._backward if step.backward else self._forward)[chunk] += 1
        if self._problem.transfer_blocks:
            self._constant_ns += transfer_after_ns(self._problem, chunk, backward=step.backward)
        start = played.end_ns(step) - occupied_ns(
            self._problem, chunk, played.costs[chunk], backward=step.backward
        )
        return self._predecessor(step, start)

    def _before(self, step: Pass) -> None:
        """Walk on from the start of a pass without counting the pass itself."""
        cost = self._played.costs[step.chunk]
        start = self._played.end_ns(step) - occupied_ns(
            self._problem, step.chunk, cost, backward=step.backward
        )
        self._passes(self._predecessor(step, start))

    def _predecessor(self, step: Pass, start_ns: int) -> Pass | None:
        stage = step.chunk % self._problem.shape.num_stages
        position = self._positions[stage][step]
        if position and self._played.end_ns(self._orders[stage][position - 1]) == start_ns:
            return self._orders[stage][position - 1]
        source = step.chunk + 1 if step.backward else step.chunk - 1
        if 0 <= source < self._problem.shape.num_chunks:
            feeding = Pass(backward=step.backward, chunk=source, micro_batch=step.micro_batch)
            flight = flight_ns(self._problem, source, backward=step.backward)
            if self._played.end_ns(feeding) + flight == start_ns:
                self._constant_ns += flight
                return feeding
        self._step_start(stage)
        return None

    def _waits_for_gather(self, chunk: int) -> bool:
        """Count the gathers before a chunk's first pass where they, not the pass, decide its end."""
        cost, end = self._played.costs[chunk], self._played.forward_end_ns[chunk][0]
        if gather_floor_ns(self._problem, cost, self._played.gather_end_ns[chunk]) != end:
            return False
        self._constant_ns += self._problem.gather_bucket_ns
        stage = chunk % self._problem.shape.num_stages
        self._count_gathers(stage, up_to=chunk)
        self._count_update(stage)
        return True

    def _step_start(self, stage: int) -> None:
        """Count what precedes a stage's first pass."""
        if not self._problem.gather_overlaps:
            self._count_gathers(stage, up_to=self._problem.shape.num_chunks - 1)
        self._count_update(stage)

    def _count_gathers(self, stage: int, *, up_to: int) -> None:
        for chunk in range(stage, up_to + 1, self._problem.shape.num_stages):
            self._gather[chunk] += 1

    def _count_update(self, stage: int) -> None:
        self._constant_ns += self._problem.barrier_ns
        for chunk in range(stage, self._problem.shape.num_chunks, self._problem.shape.num_stages):
            self._optimizer[chunk] += 1
