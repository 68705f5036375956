"""The passes of a step as one flat order whose periodic parts are loops, made once per shape.

Between warm-up and cool-down every stage repeats the same passes, ``shift`` micro-batches later each
time. One round of them is a window of every stage's order, skewed from stage to stage so that no
pass waits for a later round: then a round's ends follow from those of the round before alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from planner.cost.schedules import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    PipelineShape,
    lane_sources,
    stage_orders,
    warm_up_passes,
)
from planner.strategy import ScheduleName


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Passes in an order in which they can be played: each after those that it waits for.

    Per pass: ``lane`` is that of its chunk and kind (`PipelineShape.lane`); ``source`` the lane whose
    output it takes (one whose output goes nowhere where it takes none); ``before`` and ``feeding``
    are the distances, below zero, to the pass before it on its stage and to the pass whose output
    it takes (again the one before where it takes none). ``first_uses`` are the positions of the
    passes that may wait for a gather. A loop is played once per round.
    """

    is_loop: bool
    lane: tuple[int, ...]
    source: tuple[int, ...]
    before: tuple[int, ...]
    feeding: tuple[int, ...]
    first_uses: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOrder:
    """All passes of a step: segments one after the other, after one entry per stage for its start.

    ``num_rounds`` is how often every loop is played; ``last_backward`` the distance, below zero, of
    each chunk's last pass from the end of the order; ``stages`` names the stage of each chunk.
    """

    num_stages: int
    stages: tuple[int, ...]
    segments: tuple[Segment, ...]
    num_rounds: int
    last_backward: tuple[int, ...]


@lru_cache(maxsize=64)
def step_order(shape: PipelineShape) -> StepOrder:
    """Return the flat order of a step, with loops where it has at least three rounds.

    Raises ValueError for a shape whose stages would wait for each other for ever.
    """
    spare = _spare_rounds(shape)
    if spare > 0:
        kept = shape.num_micro_batches - spare * _shift(shape)
        order = _looped_order(replace(shape, num_micro_batches=kept))
        if order is not None:
            return replace(order, num_rounds=1 + spare)
    return _straight_order(shape)


def _shift(shape: PipelineShape) -> int:
    """Return by how many micro-batches one round is ahead of the one before."""
    takes_turns = shape.virtual_stages > 1 and not shape.schedule.folds
    return (shape.group_size or shape.num_stages) if takes_turns else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Steady:
    """The middle of a zero-bubble step: where a stage comes to it, its rounds, the passes of each."""

    starts: tuple[int, ...]
    rounds: int
    passes: int


def _steady(shape: PipelineShape) -> _Steady:
    """Return the rounds that the orders of `planner.cost.zero_bubble` repeat on every stage.

    In each a stage waits for the others' passes of the same round or of earlier ones alone.
    """
    p, m, v = shape.num_stages, shape.num_micro_batches, shape.virtual_stages
    match shape.schedule:
        case ScheduleName.ZB_H1:
            group = _shift(shape)
            ahead = (v - 1) * group + p - 1
            return _Steady(
                starts=tuple(ahead + stage for stage in range(p)),
                rounds=(v * (m - m % group) - ahead) // (v * group),
                passes=3 * v * group,
            )
        case ScheduleName.ZB_V:
            starts = tuple(5 * p - 3 * stage - 1 for stage in range(p))
            return _Steady(starts=starts, rounds=m - 2 * p + 1, passes=6)
    starts = tuple(5 * p - 3 * stage - 3 for stage in range(p))
    return _Steady(starts=starts, rounds=m - 2 * p + 1, passes=4)


def _regular_pairs(shape: PipelineShape) -> int:
    """Return how many pairs of passes stage 0 runs, those of a last, smaller group left out."""
    whole = shape.num_micro_batches - shape.num_micro_batches % _shift(shape)
    return whole * shape.virtual_stages - warm_up_passes(shape, 0)


def _spare_rounds(shape: PipelineShape) -> int:
    """Return how many rounds can be left out so that two remain."""
    if shape.schedule is ScheduleName.GPIPE:
        return shape.num_micro_batches - GPIPE_ROUNDS
    if shape.schedule is ScheduleName.BREADTH_FIRST:
        return 0  # a chunk's first pass waits for the first one of a chunk before: too far back
    if shape.schedule.splits_backward:
        return _steady(shape).rounds - ZERO_BUBBLE_ROUNDS
    return _regular_pairs(shape) // (shape.virtual_stages * _shift(shape)) - 2


GPIPE_ROUNDS: Final = 4
"""The first micro-batch, the one to compare with, one that is repeated, the last."""
ZERO_BUBBLE_ROUNDS: Final = 4
"""Two in which gradients may still come from another kind of pass, one to compare with, one repeated."""


def _limits(shape: PipelineShape) -> Iterator[tuple[list[int], bool]]:
    """Yield up to which position each stage comes by each segment, and whether that is a loop.

    The segment before a loop is a round too.
    """
    stages = range(shape.num_stages)
    lengths = [len(order) for order in stage_orders(shape)]
    if shape.schedule.splits_backward:
        steady = _steady(shape)
        for rounds in (2, 1, 0):
            done = (steady.rounds - rounds) * steady.passes
            yield [start + done for start in steady.starts], rounds == 0
    elif shape.schedule is ScheduleName.GPIPE:
        for done in (0, shape.num_micro_batches):
            yield from (([done + count] * len(stages), count == GPIPE_ROUNDS - 1) for count in (1, 2, 3))
    else:
        pairs, per_round = _regular_pairs(shape), shape.virtual_stages * _shift(shape)
        warm_up = [warm_up_passes(shape, stage) for stage in stages]
        for rounds in (2, 1, 0):
            reached = [warm_up[stage] + 2 * (pairs - rounds * per_round + stage) for stage in stages]
            yield reached, rounds == 0
    yield lengths, False


@lru_cache(maxsize=64)
def _looped_order(shape: PipelineShape) -> StepOrder | None:
    """Return the order of a short step with its repeated rounds as loops; None where rounds mix."""
    arranged = _Arrangement(shape)
    for limits, is_loop in _limits(shape):
        if not arranged.extend(limits, is_loop=is_loop):
            return None
    return arranged.order() if arranged.is_periodic() else None


def _straight_order(shape: PipelineShape) -> StepOrder:
    arranged = _Arrangement(shape)
    if not arranged.extend([len(order) for order in stage_orders(shape)], is_loop=False):
        raise ValueError(f"the stages of {shape} wait for each other for ever")
    return arranged.order()


class _Part:
    """One segment under construction, with the micro-batches and the index of its first pass."""

    def __init__(self, start: int, *, is_loop: bool, num_chunks: int) -> None:
        self.start, self.is_loop, self._num_chunks = start, is_loop, num_chunks
        self.lane: list[int] = []
        self.source: list[int] = []
        self.micro_batch: list[int] = []
        self.before: list[int] = []
        self.feeding: list[int] = []

    def add(self, lane: int, micro_batch: int, *, source: int, before: int, feeding: int) -> int:
        """Add a pass that follows two others, given by index; return its own index."""
        index = self.start + len(self.lane)
        self.lane.append(lane)
        self.source.append(source)
        self.micro_batch.append(micro_batch)
        self.before.append(before - index)
        self.feeding.append(feeding - index)
        return index

    def first_uses(self) -> tuple[int, ...]:
        passes = zip(self.lane, self.micro_batch, strict=True)
        end = 2 * self._num_chunks
        return tuple(i for i, (lane, first) in enumerate(passes) if not (lane % 2 or first) and lane < end)

    def reach(self) -> int:
        """Return the lowest index that a pass follows, the end of the part for none."""
        least = map(min, self.before, self.feeding)
        return min((self.start + i + back for i, back in enumerate(least)), default=self.start)

    def repeats(self, other: "_Part", shift: int) -> bool:
        """Whether the passes are those of another part, ``shift`` micro-batches later."""
        later = [micro_batch + shift for micro_batch in other.micro_batch]
        return self.lane == other.lane and self.micro_batch == later and self.source == other.source

    def segment(self) -> Segment:
        return Segment(
            is_loop=self.is_loop,
            lane=tuple(self.lane),
            source=tuple(self.source),
            before=tuple(self.before),
            feeding=tuple(self.feeding),
            first_uses=self.first_uses(),
        )


class _Arrangement:
    """Arranges the stages' orders into one, part by part."""

    def __init__(self, shape: PipelineShape) -> None:
        self._shape, self._orders = shape, stage_orders(shape)
        self._position = [0] * shape.num_stages
        self._latest = list(range(shape.num_stages))
        self._index = [[-1] * shape.num_micro_batches for _ in range(shape.num_lanes)]
        self._sources, self._others = lane_sources(shape)
        self._size = shape.num_stages
        self._parts: list[_Part] = []

    def extend(self, limits: Sequence[int], *, is_loop: bool) -> bool:
        """Add a part with each stage's passes up to a position; False where these wait for others."""
        part = _Part(self._size, is_loop=is_loop, num_chunks=self._shape.num_chunks)
        ready = list(range(self._shape.num_stages))[::-1]
        while ready:
            stage = ready.pop()
            if self._run(part, stage, limits[stage]):
                neighbours = {(stage - 1) % self._shape.num_stages, (stage + 1) % self._shape.num_stages}
                ready.extend(neighbours - {stage})
        self._parts.append(part)
        self._size += len(part.lane)
        return self._position == list(limits)

    def _run(self, part: _Part, stage: int, limit: int) -> bool:
        """Add a stage's passes until one misses its input; whether there were any."""
        index, order, begun = self._index, self._orders[stage], self._position[stage]
        for position in range(begun, limit):
            kind, chunk, micro_batch = order[position]
            lane = self._shape.lane(kind, chunk)
            source = self._sources[lane]
            feeding = before = self._latest[stage]
            if source < 0:
                source = self._silent(kind, chunk)
            else:
                feeding = index[source][micro_batch]
                if feeding < 0 <= self._others[lane]:
                    source = self._others[lane]
                    feeding = index[source][micro_batch]
                if feeding < 0:
                    break
            self._latest[stage] = part.add(lane, micro_batch, source=source, before=before, feeding=feeding)
            index[lane][micro_batch] = self._latest[stage]
            self._position[stage] = position + 1
        return self._position[stage] > begun

    def _silent(self, kind: int, chunk: int) -> int:
        """Return the lane of a chunk whose output goes nowhere, for a pass that takes none."""
        if kind == WEIGHT:
            return self._shape.lane(WEIGHT, chunk)
        return self._shape.lane(BACKWARD if kind == FORWARD else FORWARD, chunk)

    def _last(self) -> list[int]:
        """Return the index of each chunk's last pass."""
        found = [-1] * self._shape.num_chunks
        for lane, ends in enumerate(self._index):
            chunk = self._shape.chunk_of(lane)
            found[chunk] = max(found[chunk], *ends)
        return found

    def is_periodic(self) -> bool:
        """Whether loops repeat the part before them, and nothing looks back beyond a loop's last round."""
        shift, floor = _shift(self._shape), 0
        for before, part in zip(self._parts, self._parts[1:], strict=False):
            if part.is_loop:
                if not part.repeats(before, shift):
                    return False
                floor = before.start
            if part.reach() < floor or (floor and part.first_uses()):
                return False
            if part.is_loop:
                floor = part.start
        return min(self._last()) >= floor

    def order(self) -> StepOrder:
        return StepOrder(
            num_stages=self._shape.num_stages,
            segments=tuple(part.segment() for part in self._parts),
            num_rounds=1,
            stages=tuple(map(self._shape.stage_of, range(self._shape.num_chunks))),
            last_backward=tuple(index - self._size for index in self._last()),
        )
