"""The schedule replayed event by event: when every pass, gather and reduction of a step ends.

For a fixed order of passes the makespan is the longest path through a fixed graph, so it is
monotone in every duration and, path by path, linear in the durations of the chunks. The search
minimises this makespan, the prediction reports it and the timeline draws it.

The graph of one step, from barrier to barrier, on every stage: the barrier and the optimizer;
then the gathers of the chunks' updated parameters, one after the other; the passes in the
schedule's order, each after its predecessor on the stage and after its input has arrived (the
first pass of a chunk also waits for its gather); the reductions of the chunks' gradients, one
after the other, each beside its chunk's last backward pass; the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.pipeline import ChunkCosts, PipelineProblem
from planner.cost.schedules import Pass, stage_orders


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """One replayed step; all times are whole nanoseconds from the step's first barrier.

    ``forward_end_ns[chunk][micro_batch]`` and ``backward_end_ns`` hold the ends of the passes (a
    blocking send included), ``gather_end_ns`` and ``reduce_end_ns`` one end per chunk,
    ``update_end_ns`` and ``stage_end_ns`` one per stage.
    """

    problem: PipelineProblem
    costs: tuple[ChunkCosts, ...]
    update_end_ns: tuple[int, ...]
    gather_end_ns: tuple[int, ...]
    forward_end_ns: tuple[tuple[int, ...], ...]
    backward_end_ns: tuple[tuple[int, ...], ...]
    reduce_end_ns: tuple[int, ...]
    stage_end_ns: tuple[int, ...]
    makespan_ns: int

    def end_ns(self, step: Pass) -> int:
        """Return when a pass ends."""
        ends = self.backward_end_ns if step.backward else self.forward_end_ns
        return ends[step.chunk][step.micro_batch]


def replay(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> Replay:
    """Replay one step; ``costs`` holds one entry per chunk, in chunk order."""
    update_ends = _update_ends(problem, costs)
    gather_ends = _gather_ends(problem, costs, update_ends)
    forward_ends, backward_ends = _pass_ends(problem, costs, update_ends, gather_ends)
    reduce_ends = _reduce_ends(problem, costs, forward_ends, backward_ends)
    stage_ends = _stage_ends(problem, forward_ends, backward_ends, reduce_ends)
    joined = max(stage_ends[0], stage_ends[-1]) + problem.tied_ns if problem.tied_ns else 0
    return Replay(
        problem=problem,
        costs=tuple(costs),
        update_end_ns=tuple(update_ends),
        gather_end_ns=tuple(gather_ends),
        forward_end_ns=tuple(map(tuple, forward_ends)),
        backward_end_ns=tuple(map(tuple, backward_ends)),
        reduce_end_ns=tuple(reduce_ends),
        stage_end_ns=tuple(stage_ends),
        makespan_ns=max(*stage_ends, joined),
    )


def transfer_after_ns(problem: PipelineProblem, chunk: int, *, backward: bool) -> int:
    """Return the time that a chunk's output takes to the next stage; 0 where it goes nowhere."""
    last = 0 if backward else problem.shape.num_chunks - 1
    return 0 if chunk == last or problem.shape.num_stages == 1 else problem.transfer_ns


def occupied_ns(problem: PipelineProblem, chunk: int, cost: ChunkCosts, *, backward: bool) -> int:
    """Return how long a pass keeps its stage busy: a blocking send included."""
    work = cost.backward_ns if backward else cost.forward_ns
    return work + (transfer_after_ns(problem, chunk, backward=backward) if problem.transfer_blocks else 0)


def flight_ns(problem: PipelineProblem, chunk: int, *, backward: bool) -> int:
    """Return the time from a pass's end to its output's arrival on the next stage."""
    return 0 if problem.transfer_blocks else transfer_after_ns(problem, chunk, backward=backward)


def gather_floor_ns(problem: PipelineProblem, cost: ChunkCosts, gather_end_ns: int) -> int:
    """Return the earliest end of a chunk's first forward pass that its gather allows."""
    if not problem.gather_overlaps or not cost.gather_ns:
        return 0
    return gather_end_ns + problem.gather_bucket_ns


def reduce_order(problem: PipelineProblem, stage: int) -> list[int]:
    """Return a stage's chunks in the order in which their gradients are complete."""
    return list(range(stage, problem.shape.num_chunks, problem.shape.num_stages))[::-1]


def _update_ends(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> list[int]:
    p = problem.shape.num_stages
    return [problem.barrier_ns + sum(cost.optimizer_ns for cost in costs[stage::p]) for stage in range(p)]


def _gather_ends(
    problem: PipelineProblem, costs: Sequence[ChunkCosts], update_ends: Sequence[int]
) -> list[int]:
    ends: list[int] = []
    for chunk, cost in enumerate(costs):
        p = problem.shape.num_stages
        before = ends[chunk - p] if chunk >= p else update_ends[chunk]
        ends.append(before + cost.gather_ns)
    return ends


def _first_starts(
    problem: PipelineProblem, update_ends: Sequence[int], gather_ends: Sequence[int]
) -> list[int]:
    """Return when each stage's passes may start: after all gathers where nothing overlaps."""
    if problem.gather_overlaps:
        return list(update_ends)
    return list(gather_ends[len(gather_ends) - problem.shape.num_stages :])


def _pass_ends(
    problem: PipelineProblem,
    costs: Sequence[ChunkCosts],
    update_ends: Sequence[int],
    gather_ends: Sequence[int],
) -> tuple[list[list[int]], list[list[int]]]:
    p, count = problem.shape.num_stages, problem.shape.num_chunks
    orders = stage_orders(problem.shape)
    chunks = range(count)
    ends = tuple([[-1] * problem.shape.num_micro_batches for _ in chunks] for _ in range(2))
    work = tuple([occupied_ns(problem, c, costs[c], backward=back) for c in chunks] for back in (False, True))
    flight = tuple([flight_ns(problem, c, backward=back) for c in chunks] for back in (False, True))
    floors = [gather_floor_ns(problem, costs[c], gather_ends[c]) for c in chunks]
    free = _first_starts(problem, update_ends, gather_ends)
    positions = [0] * p
    ready = list(range(p))[::-1]
    # A stage runs until its next input is missing; what it finished wakes the stages it feeds.
    while ready:
        stage = ready.pop()
        order, position, now = orders[stage], positions[stage], free[stage]
        started_at = position
        while position < len(order):
            step = order[position]
            chunk, micro_batch, back = step.chunk, step.micro_batch, step.backward
            source = chunk + 1 if back else chunk - 1
            if 0 <= source < count:
                arrival = ends[back][source][micro_batch]
                if arrival < 0:
                    break
                arrival += flight[back][source]
                now = max(now, arrival)
            now += work[back][chunk]
            if micro_batch == 0 and not back:
                now = max(now, floors[chunk])
            ends[back][chunk][micro_batch] = now
            position += 1
        if position > started_at:
            positions[stage], free[stage] = position, now
            ready.extend({(stage - 1) % p, (stage + 1) % p} - {stage})
    return ends[False], ends[True]


def _reduce_ends(
    problem: PipelineProblem,
    costs: Sequence[ChunkCosts],
    forward_ends: Sequence[Sequence[int]],
    backward_ends: Sequence[Sequence[int]],
) -> list[int]:
    ends = [0] * len(costs)
    for stage in range(problem.shape.num_stages):
        end = 0 if problem.reduce_overlaps else _passes_end(problem, stage, forward_ends, backward_ends)
        for chunk in reduce_order(problem, stage):
            cost = costs[chunk]
            if cost.reduce_ns and problem.reduce_overlaps:
                done = backward_ends[chunk][-1]
                start = done - occupied_ns(problem, chunk, cost, backward=True)
                end = max(max(end, start) + cost.reduce_ns, done + problem.reduce_bucket_ns)
            else:
                end += cost.reduce_ns
            ends[chunk] = end
    return ends


def _passes_end(
    problem: PipelineProblem,
    stage: int,
    forward_ends: Sequence[Sequence[int]],
    backward_ends: Sequence[Sequence[int]],
) -> int:
    step = stage_orders(problem.shape)[stage][-1]
    return (backward_ends if step.backward else forward_ends)[step.chunk][step.micro_batch]


def _stage_ends(
    problem: PipelineProblem,
    forward_ends: Sequence[Sequence[int]],
    backward_ends: Sequence[Sequence[int]],
    reduce_ends: Sequence[int],
) -> list[int]:
    return [
        max(_passes_end(problem, stage, forward_ends, backward_ends), reduce_ends[stage])
        for stage in range(problem.shape.num_stages)
    ]
