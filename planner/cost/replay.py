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


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish:
    """The end of a step: the ends of reductions (by chunk) and stages, and of all; whole nanoseconds."""

    reduce_end_ns: tuple[int, ...]
    stage_end_ns: tuple[int, ...]
    makespan_ns: int


def replay(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> Replay:
    """Replay one step; ``costs`` holds one entry per chunk, in chunk order.

    Raises ValueError for a shape whose stages would wait for each other for ever.
    """
    updated = update_ends(problem, costs)
    gathered = gather_ends(problem, costs, updated)
    forward_ends, backward_ends = _pass_ends(problem, costs, updated, gathered)
    finished = finish(problem, costs, [ends[-1] for ends in backward_ends])
    return Replay(
        problem=problem,
        costs=tuple(costs),
        update_end_ns=tuple(updated),
        gather_end_ns=tuple(gathered),
        forward_end_ns=tuple(map(tuple, forward_ends)),
        backward_end_ns=tuple(map(tuple, backward_ends)),
        reduce_end_ns=finished.reduce_end_ns,
        stage_end_ns=finished.stage_end_ns,
        makespan_ns=finished.makespan_ns,
    )


def transfer_after_ns(problem: PipelineProblem, chunk: int, *, backward: bool) -> int:
    """Return the time that a chunk's output takes to the next stage; 0 where it goes nowhere."""
    last, stages = 0 if backward else problem.shape.num_chunks - 1, problem.shape.num_stages
    if chunk == last or stages == 1:
        return 0
    if not problem.boundaries_ns:
        return problem.transfer_ns
    return problem.boundaries_ns[(chunk - backward) % stages]


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


def update_ends(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> list[int]:
    """Return when each stage has updated its parameters."""
    p = problem.shape.num_stages
    return [problem.barrier_ns + sum(cost.optimizer_ns for cost in costs[stage::p]) for stage in range(p)]


def gather_ends(
    problem: PipelineProblem, costs: Sequence[ChunkCosts], update_end_ns: Sequence[int]
) -> list[int]:
    """Return when each chunk's updated parameters are gathered."""
    ends: list[int] = []
    for chunk, cost in enumerate(costs):
        p = problem.shape.num_stages
        before = ends[chunk - p] if chunk >= p else update_end_ns[chunk]
        ends.append(before + cost.gather_ns)
    return ends


def first_starts(
    problem: PipelineProblem, update_end_ns: Sequence[int], gather_end_ns: Sequence[int]
) -> list[int]:
    """Return when each stage's passes may start: after all gathers where nothing overlaps."""
    if problem.gather_overlaps:
        return list(update_end_ns)
    return list(gather_end_ns[len(gather_end_ns) - problem.shape.num_stages :])


def finish(problem: PipelineProblem, costs: Sequence[ChunkCosts], done_ns: Sequence[int]) -> Finish:
    """Return the end of a step whose chunks' last backward passes end at ``done_ns``.

    The last pass of a stage is the last backward pass of its first chunk.
    """
    stages = range(problem.shape.num_stages)
    reduced = _reduce_ends(problem, costs, done_ns)
    ends = [max(done_ns[stage], reduced[stage]) for stage in stages]
    joined = max(ends[0], ends[-1]) + problem.tied_ns if problem.tied_ns else 0
    return Finish(reduce_end_ns=tuple(reduced), stage_end_ns=tuple(ends), makespan_ns=max(*ends, joined))


def _pass_ends(
    problem: PipelineProblem,
    costs: Sequence[ChunkCosts],
    update_end_ns: Sequence[int],
    gather_end_ns: Sequence[int],
) -> tuple[list[list[int]], list[list[int]]]:
    p, count = problem.shape.num_stages, problem.shape.num_chunks
    orders = stage_orders(problem.shape)
    chunks = range(count)
    # Indexed by twice the chunk, plus one for backward passes.
    ends = [[-1] * problem.shape.num_micro_batches for _ in range(2 * count)]
    work = [occupied_ns(problem, c, costs[c], backward=back) for c in chunks for back in (False, True)]
    flight = [flight_ns(problem, c, backward=back) for c in chunks for back in (False, True)]
    floors = [gather_floor_ns(problem, costs[c], gather_end_ns[c]) for c in chunks]
    free = first_starts(problem, update_end_ns, gather_end_ns)
    positions = [0] * p
    ready = list(range(p))[::-1]
    # A stage runs until its next input is missing; what it finished wakes the stages it feeds.
    while ready:
        stage = ready.pop()
        order, started_at, now = orders[stage], positions[stage], free[stage]
        position = started_at
        while position < len(order):
            backward, chunk, micro_batch = order[position]
            lane = 2 * chunk + backward
            source = lane + 2 if backward else lane - 2
            if 0 <= source < 2 * count:
                arrival = ends[source][micro_batch]
                if arrival < 0:
                    break
                now = max(now, arrival + flight[source])
            now += work[lane]
            if micro_batch == 0 and not backward:
                now = max(now, floors[chunk])
            ends[lane][micro_batch] = now
            position += 1
        if position > started_at:
            positions[stage], free[stage] = position, now
            ready.extend({(stage - 1) % p, (stage + 1) % p} - {stage})
    if any(position < len(order) for position, order in zip(positions, orders, strict=True)):
        raise ValueError(f"the stages of {problem.shape} wait for each other for ever")
    return ends[::2], ends[1::2]


def _reduce_ends(problem: PipelineProblem, costs: Sequence[ChunkCosts], done_ns: Sequence[int]) -> list[int]:
    ends = [0] * len(costs)
    for stage in range(problem.shape.num_stages):
        end = 0 if problem.reduce_overlaps else done_ns[stage]
        for chunk in reduce_order(problem, stage):
            cost = costs[chunk]
            if cost.reduce_ns and problem.reduce_overlaps:
                done = done_ns[chunk]
                start = done - occupied_ns(problem, chunk, cost, backward=True)
                end = max(max(end, start) + cost.reduce_ns, done + problem.reduce_bucket_ns)
            else:
                end += cost.reduce_ns
            ends[chunk] = end
    return ends
