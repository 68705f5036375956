"""How long a step takes and by which path, without playing what only repeats.

Between the first and the last micro-batches a schedule repeats itself. Once two repetitions in a row
are the same but for one shift in time, every later one is, so those are skipped: a step of fewer
micro-batches is played, and the shift added for each repetition left out. What repeats on the critical
path is counted as often. Where repetitions never agree, the whole step is played. The result is exactly
the replay's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from planner.cost.critical_path import PathCounts
from planner.cost.pipeline import ChunkCosts, PipelineProblem
from planner.cost.schedules import PipelineShape, stage_orders, warm_up_passes
from planner.strategy import ScheduleName

NEVER: Final = -(1 << 62)
"""End of a pass that is not there: before everything."""
REPETITIONS: Final = (3, 6)
"""Repetitions that are played before they are compared, in the first and the second try."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """A step's length and its critical path."""

    makespan_ns: int
    path: PathCounts


def course(problem: PipelineProblem, costs: Sequence[ChunkCosts]) -> Course:
    """Return the step's length and critical path; ``costs`` in chunk order, as in a replay."""
    for repetitions in REPETITIONS:
        skipped = skippable(problem.shape, repetitions)
        if not skipped:
            break
        found = _Play(problem, costs, skipped).shortened(repetitions)
        if found is not None:
            return found
    return _Play(problem, costs, 0).whole()


def repetition(shape: PipelineShape) -> int:
    """Return after how many micro-batches a schedule's order repeats in the middle of a step."""
    return 1 if shape.virtual_stages == 1 else shape.group_size or shape.num_stages


def skippable(shape: PipelineShape, repetitions: int) -> int:
    """Return how many repetitions can be left out when so many are played on every stage."""
    period = repetition(shape)
    if shape.schedule is ScheduleName.GPIPE or (shape.virtual_stages > 1 and period < shape.num_stages):
        return 0
    forwards = shape.virtual_stages * (shape.num_micro_batches // period) * period
    pairs = forwards - warm_up_passes(shape, 0)
    return max(pairs // (shape.virtual_stages * period) - repetitions, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Graph:
    """The passes of a shape in an order in which they can run.

    Pass ``i`` follows pass ``before[i]`` of its stage and takes the output of ``source[i]``; both are
    numbers of ends: 0 to p - 1 the stages' starts, p the end of nothing, then the passes. ``kind`` is
    twice the chunk, plus one for backward. ``number[stage][position]`` finds a pass.
    """

    before: list[int]
    source: list[int]
    kind: list[int]
    first_uses: tuple[int, ...]
    number: list[list[int]]
    place: list[tuple[int, int]]


@lru_cache(maxsize=64)
def _graph(shape: PipelineShape) -> _Graph:
    p, count = shape.num_stages, shape.num_chunks
    orders = stage_orders(shape)
    before, source, kind, place = [], [], [], []
    first_uses = []
    number: list[list[int]] = [[] for _ in range(p)]
    found: dict[tuple[bool, int, int], int] = {}
    ready = list(range(p))[::-1]
    while ready:
        stage = ready.pop()
        order, mine = orders[stage], number[stage]
        begun = len(mine)
        while len(mine) < len(order):
            step = order[len(mine)]
            chunk = step.chunk + 1 if step.backward else step.chunk - 1
            feeding = p
            if 0 <= chunk < count:
                feeding = found.get((step.backward, chunk, step.micro_batch), -1)
                if feeding < 0:
                    break
            end = p + 1 + len(kind)
            if step.micro_batch == 0 and not step.backward:
                first_uses.append(len(kind))
            before.append(mine[-1] if mine else stage)
            source.append(feeding)
            kind.append(2 * step.chunk + step.backward)
            place.append((stage, len(mine)))
            found[step.backward, step.chunk, step.micro_batch] = end
            mine.append(end)
        if len(mine) > begun:
            ready.extend({(stage - 1) % p, (stage + 1) % p} - {stage})
    return _Graph(
        before=before,
        source=source,
        kind=kind,
        first_uses=tuple(first_uses),
        number=number,
        place=place,
    )


class _Play:
    """One step of a shape with some repetitions left out, played pass by pass."""

    def __init__(self, problem: PipelineProblem, costs: Sequence[ChunkCosts], skipped: int) -> None:
        fewer = problem.shape.num_micro_batches - skipped * repetition(problem.shape)
        self._shape = replace(problem.shape, num_micro_batches=fewer)
        self._problem, self._costs, self._skipped = problem, costs, skipped
        self._graph = _graph(self._shape)
        p, hop = self._shape.num_stages, problem.transfer_ns if self._shape.num_stages > 1 else 0
        sent = hop if problem.transfer_blocks else 0
        self._flight = hop - sent
        last = self._shape.num_chunks - 1
        self._work = [
            work
            for chunk, cost in enumerate(costs)
            for work in (
                cost.forward_ns + (sent if chunk < last else 0),
                cost.backward_ns + (sent if chunk > 0 else 0),
            )
        ]
        self._updated = [
            problem.barrier_ns + sum(cost.optimizer_ns for cost in costs[stage::p]) for stage in range(p)
        ]
        self._gathered = self._gather_ends()
        starts = self._updated if problem.gather_overlaps else self._gathered[-p:]
        self._ends = self._play(list(starts))

    def _gather_ends(self) -> list[int]:
        p, ends = self._shape.num_stages, list[int]()
        for chunk, cost in enumerate(self._costs):
            ends.append((ends[chunk - p] if chunk >= p else self._updated[chunk]) + cost.gather_ns)
        return ends

    def _floors(self) -> dict[int, int]:
        """Return the earliest ends of first passes that wait for their chunk's gather, by pass."""
        if not self._problem.gather_overlaps:
            return {}
        return {
            number: self._gathered[chunk] + self._problem.gather_bucket_ns
            for number in self._graph.first_uses
            if self._costs[chunk := self._graph.kind[number] // 2].gather_ns
        }

    def _play(self, ends: list[int]) -> list[int]:
        graph, work, flight = self._graph, self._work, self._flight
        ends.append(NEVER)
        floors = self._floors()
        add = ends.append
        # What precedes the last floor is played with an eye on floors, the rest without.
        head = max(floors, default=-1) + 1
        for number in range(head):
            start = max(ends[graph.before[number]], ends[graph.source[number]] + flight)
            add(max(start + work[graph.kind[number]], floors.get(number, NEVER)))
        for before, source, kind in zip(
            graph.before[head:], graph.source[head:], graph.kind[head:], strict=True
        ):
            ready, arrived = ends[before], ends[source] + flight
            add((ready if ready >= arrived else arrived) + work[kind])
        self._floor_of = floors
        return ends

    # --- what repeats --------------------------------------------------------------------------

    def shortened(self, repetitions: int) -> Course | None:
        """Return the whole step's course, None unless the last two repetitions are alike."""
        shift = self._shift(repetitions)
        if shift is None:
            return None
        trail = self._trail()
        cycle = self._cycle(trail, repetitions)
        if cycle is None:
            return None
        return Course(
            makespan_ns=self._makespan_ns() + self._skipped * shift, path=self._counts(trail, cycle)
        )

    def whole(self) -> Course:
        """Return the course of a step that was played in full."""
        return Course(makespan_ns=self._makespan_ns(), path=self._counts(self._trail(), _Cycle(0, 0, 0)))

    def _begin(self, stage: int) -> int:
        """Return the position at which a stage's first repetition begins.

        A pass of a later stage may feed one that is up to p - 2 pairs behind on stage 0: so many pairs
        later the last stage's repetitions begin, and each depends on itself and the one before alone.
        """
        apart = max(min(stage, self._shape.num_stages - 2), 0) if self._shape.virtual_stages > 1 else 0
        return warm_up_passes(self._shape, stage) + 2 * apart

    def _length(self) -> int:
        """Return the passes of one repetition on a stage."""
        return 2 * self._shape.virtual_stages * repetition(self._shape)

    def _shift(self, repetitions: int) -> int | None:
        """Return by how much later the last repetition ends than the one before, None when it varies."""
        length, shift = self._length(), None
        for stage in range(self._shape.num_stages):
            begin = self._begin(stage) + (repetitions - 2) * length
            numbers = self._graph.number[stage]
            earlier, later = numbers[begin : begin + length], numbers[begin + length : begin + 2 * length]
            for ahead, after in zip(earlier, later, strict=True):
                if shift is None:
                    shift = self._ends[after] - self._ends[ahead]
                elif self._ends[after] - self._ends[ahead] != shift:
                    return None
        return shift

    def _cycle(self, trail: "_Trail", repetitions: int) -> "_Cycle | None":
        """Return a part of the path that leads from a pass to the same pass some repetitions later."""
        length, p = self._length(), self._shape.num_stages
        seen: dict[tuple[int, int], tuple[int, int]] = {}
        for step, end in enumerate(trail.passes):
            stage, place = self._graph.place[end - p - 1]
            done, offset = divmod(place - self._begin(stage), length)
            if not 1 <= done < repetitions:
                continue
            if (stage, offset) not in seen:
                seen[stage, offset] = (step, done)
                continue
            later, later_done = seen[stage, offset]
            if self._skipped % (later_done - done) == 0:
                cycle = _Cycle(later, step, self._skipped // (later_done - done))
                return cycle if self._is_sound(trail, cycle, repetitions) else None
        return None

    def _is_sound(self, trail: "_Trail", cycle: "_Cycle", repetitions: int) -> bool:
        """Whether what comes before the repeated part is before the end, and what comes after past the start."""
        length = self._length()
        places = [self._graph.place[end - self._shape.num_stages - 1] for end in trail.passes]
        return all(
            place >= warm_up_passes(self._shape, stage) for stage, place in places[: cycle.earlier]
        ) and all(
            place < self._begin(stage) + repetitions * length for stage, place in places[cycle.later :]
        )

    # --- the end of the step ---------------------------------------------------------------------

    def _last_backward(self, chunk: int) -> int:
        """Return the number of the end of a chunk's last backward pass."""
        stage, turn = chunk % self._shape.num_stages, chunk // self._shape.num_stages
        size = self._shape.group_size or self._shape.num_stages
        if self._shape.virtual_stages == 1:
            return self._graph.number[stage][-1]
        last_group = self._shape.num_micro_batches % size or size
        return self._graph.number[stage][-1 - turn * last_group]

    def _reduce_ends(self, stage: int) -> list[tuple[int, int]]:
        """Return the chunks of a stage in the order of their reductions, with the end of each."""
        problem, found = self._problem, list[tuple[int, int]]()
        end = 0 if problem.reduce_overlaps else self._ends[self._graph.number[stage][-1]]
        for chunk in range(stage, self._shape.num_chunks, self._shape.num_stages)[::-1]:
            reduce_ns = self._costs[chunk].reduce_ns
            if reduce_ns and problem.reduce_overlaps:
                done = self._ends[self._last_backward(chunk)]
                start = done - self._work[2 * chunk + 1]
                end = max(max(end, start) + reduce_ns, done + problem.reduce_bucket_ns)
            else:
                end += reduce_ns
            found.append((chunk, end))
        return found

    def _stage_end(self, stage: int) -> int:
        return max(self._ends[self._graph.number[stage][-1]], self._reduce_ends(stage)[-1][1])

    def _makespan_ns(self) -> int:
        ends = [self._stage_end(stage) for stage in range(self._shape.num_stages)]
        tied = self._problem.tied_ns
        return max(*ends, max(ends[0], ends[-1]) + tied if tied else 0)

    # --- the critical path -----------------------------------------------------------------------

    def _trail(self) -> "_Trail":
        """Walk the critical path from the end of the step to its start."""
        trail = _Trail(reduced=[0] * len(self._costs), gathered=[0] * len(self._costs))
        ends = [self._stage_end(stage) for stage in range(self._shape.num_stages)]
        stage = ends.index(max(ends))
        if self._makespan_ns() > max(ends):
            trail.constant_ns += self._problem.tied_ns
            stage = 0 if ends[0] >= ends[-1] else len(ends) - 1
        last = self._graph.number[stage][-1]
        if self._ends[last] == ends[stage]:
            self._follow(trail, last)
        else:
            self._follow_reductions(trail, stage)
        return trail

    def _follow_reductions(self, trail: "_Trail", stage: int) -> None:
        """Walk a stage's chain of reductions back to the pass that it waited for."""
        chain, problem = self._reduce_ends(stage), self._problem
        for place, (chunk, end) in reversed(list(enumerate(chain))):
            reduce_ns = self._costs[chunk].reduce_ns
            if not reduce_ns:
                continue
            last = self._last_backward(chunk)
            if problem.reduce_overlaps and end == self._ends[last] + problem.reduce_bucket_ns:
                trail.constant_ns += problem.reduce_bucket_ns
                self._follow(trail, last)
                return
            trail.reduced[chunk] += 1
            before = chain[place - 1][1] if place else None
            if before is None or end - reduce_ns > before:
                if problem.reduce_overlaps:
                    self._follow(trail, self._predecessor(trail, last))
                    return
                break
        self._follow(trail, self._graph.number[stage][-1])

    def _follow(self, trail: "_Trail", end: int) -> None:
        """Walk passes back from the end of one to the start of the step."""
        p, graph = self._shape.num_stages, self._graph
        while end > p:
            number = end - p - 1
            if self._floor_of.get(number) == self._ends[end]:
                chunk = graph.kind[number] // 2
                trail.constant_ns += self._problem.gather_bucket_ns
                trail.gathered[chunk % p : chunk + 1 : p] = [1] * (chunk // p + 1)
                trail.first_stage = chunk % p
                return
            trail.passes.append(end)
            end = self._predecessor(trail, end)
        trail.first_stage = end
        if not self._problem.gather_overlaps:
            trail.gathered[end::p] = [1] * self._shape.virtual_stages

    def _predecessor(self, trail: "_Trail", end: int) -> int:
        """Return the end that a pass waited for, its stage's own where both are as late."""
        number = end - self._shape.num_stages - 1
        start = self._ends[end] - self._work[self._graph.kind[number]]
        before = self._graph.before[number]
        if self._ends[before] == start:
            return before
        trail.flights.add(len(trail.passes) - 1)
        return self._graph.source[number]

    def _counts(self, trail: "_Trail", cycle: "_Cycle") -> PathCounts:
        p, passes = self._shape.num_stages, [0] * (2 * len(self._costs))
        constant = trail.constant_ns + self._problem.barrier_ns
        for step, end in enumerate(trail.passes):
            times = 1 + (cycle.times if cycle.later <= step < cycle.earlier else 0)
            passes[self._graph.kind[end - p - 1]] += times
            constant += times * self._flight if step in trail.flights else 0
        constant += self._flight if -1 in trail.flights else 0
        forward, backward = passes[::2], passes[1::2]
        for chunk, cost in enumerate(self._costs):
            constant += forward[chunk] * (self._work[2 * chunk] - cost.forward_ns)
            constant += backward[chunk] * (self._work[2 * chunk + 1] - cost.backward_ns)
        updated = [int(chunk % p == trail.first_stage) for chunk in range(len(self._costs))]
        return PathCounts(
            forward=tuple(forward),
            backward=tuple(backward),
            gather=tuple(trail.gathered),
            reduce=tuple(trail.reduced),
            optimizer=tuple(updated),
            constant_ns=constant,
        )


@dataclass(kw_only=True, slots=True)
class _Trail:
    """The critical path from its end: passes, which of them waited for a flight, and what else lies on it.

    ``flights`` holds places in ``passes``; -1 stands for a pass whose start, not end, is on the path.
    """

    reduced: list[int]
    gathered: list[int]
    passes: list[int] = field(default_factory=list)
    flights: set[int] = field(default_factory=set)
    first_stage: int = 0
    constant_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Cycle:
    """A part of a trail, ``later`` up to before ``earlier``, that is run ``times`` more."""

    later: int
    earlier: int
    times: int
