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
from functools import lru_cache

from planner.cost.pipeline import ChunkCosts, PipelineProblem
from planner.cost.schedules import (
    BACKWARD,
    FORWARD,
    INPUT,
    WEIGHT,
    Pass,
    PipelineShape,
    lane_sources,
    last_kinds,
    stage_orders,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """One replayed step; all times are whole nanoseconds from the step's first barrier.

    ``pass_end_ns[lane][micro_batch]`` hold the ends of the passes (a blocking send included; -1 for a
    micro-batch that has no pass of a kind), ``gather_end_ns`` and ``reduce_end_ns`` one end per chunk,
    ``update_end_ns`` and ``stage_end_ns`` one per stage.
    """

    problem: PipelineProblem
    costs: tuple[ChunkCosts, ...]
    update_end_ns: tuple[int, ...]
    gather_end_ns: tuple[int, ...]
    pass_end_ns: tuple[tuple[int, ...], ...]
    reduce_end_ns: tuple[int, ...]
    stage_end_ns: tuple[int, ...]
    makespan_ns: int

    def end_ns(self, step: Pass) -> int:
        """Return when a pass ends."""
        return self.pass_end_ns[self.problem.shape.lane(step.kind, step.chunk)][step.micro_batch]

    def start_ns(self, step: Pass) -> int:
        """Return when a pass starts."""
        cost = self.costs[step.chunk]
        return self.end_ns(step) - occupied_ns(self.problem, step.chunk, cost, kind=step.kind)


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
    ends = _pass_ends(problem, costs, updated, gathered)
    finished = finish(problem, costs, _done(problem.shape, ends))
    return Replay(
        problem=problem,
        costs=tuple(costs),
        update_end_ns=tuple(updated),
        gather_end_ns=tuple(gathered),
        pass_end_ns=tuple(map(tuple, ends)),
        reduce_end_ns=finished.reduce_end_ns,
        stage_end_ns=finished.stage_end_ns,
        makespan_ns=finished.makespan_ns,
    )


def transfer_after_ns(problem: PipelineProblem, chunk: int, *, backward: bool) -> int:
    """Return the time that a chunk's output takes to the next stage; 0 where it goes nowhere."""
    last, stages = 0 if backward else problem.shape.num_chunks - 1, problem.shape.num_stages
    if chunk == last or stages == 1:
        return 0
    before = chunk - backward
    if before == stages - 1 and problem.shape.schedule.folds:
        return 0  # the two chunks in the middle of a fold are on one stage
    if not problem.boundaries_ns:
        return problem.transfer_ns
    if problem.shape.schedule.folds:
        return problem.boundaries_ns[min(before, 2 * stages - 2 - before)]
    return problem.boundaries_ns[before % stages]


def work_ns(cost: ChunkCosts, kind: int) -> int:
    """Return how long a pass of a kind works."""
    if kind == FORWARD:
        return cost.forward_ns
    if kind == BACKWARD:
        return cost.backward_ns
    return cost.weight_ns if kind == WEIGHT else cost.backward_ns - cost.weight_ns


def occupied_ns(problem: PipelineProblem, chunk: int, cost: ChunkCosts, *, kind: int) -> int:
    """Return how long a pass keeps its stage busy: a blocking send included."""
    if not problem.transfer_blocks or kind == WEIGHT:
        return work_ns(cost, kind)
    return work_ns(cost, kind) + transfer_after_ns(problem, chunk, backward=kind != FORWARD)


def flight_ns(problem: PipelineProblem, chunk: int, *, kind: int) -> int:
    """Return the time from a pass's end to its output's arrival on the next stage."""
    if problem.transfer_blocks or kind == WEIGHT:
        return 0
    return transfer_after_ns(problem, chunk, backward=kind != FORWARD)


@lru_cache(maxsize=256)
def lanes(shape: PipelineShape) -> tuple[tuple[int, int], ...]:
    """Return the chunk and the kind of every lane, in order."""
    chunks = range(shape.num_chunks)
    found = [(chunk, kind) for chunk in chunks for kind in (FORWARD, BACKWARD)]
    if shape.schedule.splits_backward:
        found += [(chunk, kind) for chunk in chunks for kind in (INPUT, WEIGHT)]
    return tuple(found)


def gather_floor_ns(problem: PipelineProblem, cost: ChunkCosts, gather_end_ns: int) -> int:
    """Return the earliest end of a chunk's first forward pass that its gather allows."""
    if not problem.gather_overlaps or not cost.gather_ns:
        return 0
    return gather_end_ns + problem.gather_bucket_ns


def reduce_order(problem: PipelineProblem, stage: int) -> list[int]:
    """Return a stage's chunks in the order in which their gradients are complete."""
    return list(problem.shape.chunks_of(stage))[::-1]


def update_ends(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> list[int]:
    """Return when each stage has updated its parameters."""
    own = map(problem.shape.own, range(problem.shape.num_stages))
    return [problem.barrier_ns + sum(cost.optimizer_ns for cost in costs[chunks]) for chunks in own]


def gather_ends(
    problem: PipelineProblem, costs: Sequence[ChunkCosts], update_end_ns: Sequence[int]
) -> list[int]:
    """Return when each chunk's updated parameters are gathered."""
    ends = [0] * len(costs)
    for stage, updated in enumerate(update_end_ns):
        now = updated
        for chunk in problem.shape.chunks_of(stage):
            now += costs[chunk].gather_ns
            ends[chunk] = now
    return ends


def first_starts(
    problem: PipelineProblem, update_end_ns: Sequence[int], gather_end_ns: Sequence[int]
) -> list[int]:
    """Return when each stage's passes may start: after all gathers where nothing overlaps."""
    if problem.gather_overlaps:
        return list(update_end_ns)
    return [gather_end_ns[problem.shape.chunks_of(i)[-1]] for i in range(problem.shape.num_stages)]


def finish(problem: PipelineProblem, costs: Sequence[ChunkCosts], done_ns: Sequence[int]) -> Finish:
    """Return the end of a step whose chunks' gradients are complete at ``done_ns``.

    The last pass of a stage completes those of its first chunk.
    """
    stages = range(problem.shape.num_stages)
    reduced = _reduce_ends(problem, costs, done_ns)
    ends = [max(done_ns[stage], reduced[stage]) for stage in stages]
    joined = max(ends[0], ends[-1]) + problem.tied_ns if problem.tied_ns else 0
    return Finish(reduce_end_ns=tuple(reduced), stage_end_ns=tuple(ends), makespan_ns=max(*ends, joined))


def _done(shape: PipelineShape, ends: Sequence[Sequence[int]]) -> list[int]:
    """Return when the last pass that adds to a chunk's gradients ends."""
    kinds = (BACKWARD, WEIGHT) if shape.schedule.splits_backward else (BACKWARD,)
    return [max(max(ends[shape.lane(kind, c)]) for kind in kinds) for c in range(shape.num_chunks)]


def _pass_ends(
    problem: PipelineProblem,
    costs: Sequence[ChunkCosts],
    update_end_ns: Sequence[int],
    gather_end_ns: Sequence[int],
) -> list[list[int]]:
    shape, p = problem.shape, problem.shape.num_stages
    orders, apart = stage_orders(shape), 2 * shape.num_chunks - INPUT
    sources, others = lane_sources(shape)
    ends = [[-1] * shape.num_micro_batches for _ in range(shape.num_lanes)]
    work = [occupied_ns(problem, c, costs[c], kind=kind) for c, kind in lanes(shape)]
    flight = [flight_ns(problem, c, kind=kind) for c, kind in lanes(shape)]
    floors = [gather_floor_ns(problem, cost, end) for cost, end in zip(costs, gather_end_ns, strict=True)]
    free = first_starts(problem, update_end_ns, gather_end_ns)
    positions = [0] * p
    ready = list(range(p))[::-1]
    # A stage runs until its next input is missing; what it finished wakes the stages it feeds.
    while ready:
        stage = ready.pop()
        order, started_at, now = orders[stage], positions[stage], free[stage]
        position = started_at
        while position < len(order):
            kind, chunk, micro_batch = order[position]
            lane = 2 * chunk + kind if kind < INPUT else apart + 2 * chunk + kind
            source = sources[lane]
            if source >= 0:
                arrival = ends[source][micro_batch]
                if arrival < 0:
                    source = others[lane]
                    if source < 0 or ends[source][micro_batch] < 0:
                        break
                    arrival = ends[source][micro_batch]
                now = max(now, arrival + flight[source])
            now += work[lane]
            if micro_batch == 0 and kind == FORWARD:
                now = max(now, floors[chunk])
            ends[lane][micro_batch] = now
            position += 1
        if position > started_at:
            positions[stage], free[stage] = position, now
            ready.extend({(stage - 1) % p, (stage + 1) % p} - {stage})
    if any(position < len(order) for position, order in zip(positions, orders, strict=True)):
        raise ValueError(f"the stages of {problem.shape} wait for each other for ever")
    return ends


def last_ns(problem: PipelineProblem, chunk: int, cost: ChunkCosts) -> int:
    """Return how long the last pass that adds to a chunk's gradients keeps its stage busy."""
    return occupied_ns(problem, chunk, cost, kind=last_kinds(problem.shape)[chunk])


def _reduce_ends(problem: PipelineProblem, costs: Sequence[ChunkCosts], done_ns: Sequence[int]) -> list[int]:
    ends = [0] * len(costs)
    for stage in range(problem.shape.num_stages):
        end = 0 if problem.reduce_overlaps else done_ns[stage]
        for chunk in reduce_order(problem, stage):
            cost = costs[chunk]
            if cost.reduce_ns and problem.reduce_overlaps:
                done = done_ns[chunk]
                start = done - last_ns(problem, chunk, cost)
                end = max(max(end, start) + cost.reduce_ns, done + problem.reduce_bucket_ns)
            else:
                end += cost.reduce_ns
            ends[chunk] = end
    return ends
