"""The fixed order of forward and backward passes on each stage, for every pipeline schedule.

Chunks are numbered in forward order, 0 to p v - 1; chunk c sits on stage c mod p. An order is what
one stage executes from the first to the last pass of a step.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from planner.strategy import ScheduleName


class Pass(NamedTuple):
    """One forward or backward pass of one micro-batch through one chunk.

    A tuple, because a step may have a hundred thousand of them.
    """

    backward: bool
    chunk: int
    micro_batch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineShape:
    """What fixes the orders: schedule, p stages, v chunks per stage, m micro-batches.

    ``group_size`` micro-batches go through one chunk before the next one's turn (interleaved only;
    default p).
    """

    schedule: ScheduleName
    num_stages: int
    virtual_stages: int
    num_micro_batches: int
    group_size: int | None = None

    def __post_init__(self) -> None:
        """Refuse counts below one and chunks without a schedule that can run them."""
        if min(self.num_stages, self.virtual_stages, self.num_micro_batches) < 1:
            raise ValueError(f"stages, virtual stages and micro-batches must be positive: {self}")
        if (self.virtual_stages > 1) != (self.schedule is ScheduleName.INTERLEAVED):
            raise ValueError(f"{self.schedule} does not run {self.virtual_stages} virtual stages")

    @property
    def num_chunks(self) -> int:
        """Chunks of all stages together."""
        return self.num_stages * self.virtual_stages


@lru_cache(maxsize=64)
def stage_orders(shape: PipelineShape) -> tuple[tuple[Pass, ...], ...]:
    """Return the order of passes of every stage.

    1F1B: Narayanan et al., SC21, section 2.2.1. Interleaved: the same section 2.2.2, with the
    warm-up that Megatron-core and torch.distributed.pipelining both use,
    2 (p - i - 1) + (v - 1) g passes on stage i.
    """
    return tuple(_stage_order(shape, stage) for stage in range(shape.num_stages))


def _stage_order(shape: PipelineShape, stage: int) -> tuple[Pass, ...]:
    forwards = _forward_sequence(shape, stage)
    backwards = _backward_sequence(shape, stage)
    warm_up = min(warm_up_passes(shape, stage), len(forwards))
    steady = len(forwards) - warm_up
    paired = chain.from_iterable(zip(forwards[warm_up:], backwards[:steady], strict=True))
    return (*forwards[:warm_up], *paired, *backwards[steady:])


def warm_up_passes(shape: PipelineShape, stage: int) -> int:
    """Return how many forward passes precede the alternation of passes, were there enough of them."""
    distance = shape.num_stages - stage - 1
    match shape.schedule:
        case ScheduleName.GPIPE:
            return shape.num_micro_batches
        case ScheduleName.ONE_FORWARD_ONE_BACKWARD:
            return distance
        case ScheduleName.INTERLEAVED:
            return 2 * distance + (shape.virtual_stages - 1) * (shape.group_size or shape.num_stages)


def _forward_sequence(shape: PipelineShape, stage: int) -> list[Pass]:
    chunks = range(stage, shape.num_chunks, shape.num_stages)
    return [
        Pass(False, chunk, micro_batch)  # noqa: FBT003 - by position: keywords take twice the time
        for group in _micro_batch_groups(shape)
        for chunk in chunks
        for micro_batch in group
    ]


def _backward_sequence(shape: PipelineShape, stage: int) -> list[Pass]:
    chunks = range(stage, shape.num_chunks, shape.num_stages)[::-1]
    return [
        Pass(True, chunk, micro_batch)  # noqa: FBT003 - by position: keywords take twice the time
        for group in _micro_batch_groups(shape)
        for chunk in chunks
        for micro_batch in group
    ]


def _micro_batch_groups(shape: PipelineShape) -> list[range]:
    size = shape.group_size or shape.num_stages
    total = shape.num_micro_batches
    return [range(first, min(first + size, total)) for first in range(0, total, size)]


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a stage's order: saved micro-batches per own chunk, and the pass under way.

    ``saved`` counts the pass under way itself: a forward fills what a backward still holds.
    """

    saved: tuple[int, ...]
    turn: int
    backward: bool


@lru_cache(maxsize=256)
def memory_moments(shape: PipelineShape, stage: int) -> tuple[Moment, ...]:
    """Return the moments of a stage at which memory can peak: those that no other one dominates.

    A moment dominates another when the same pass is under way and no chunk has fewer saved
    micro-batches. ``saved`` is indexed by the stage's own chunks, 0 to v - 1.
    """
    saved = [0] * shape.virtual_stages
    seen: dict[tuple[int, bool], set[tuple[int, ...]]] = {}
    for step in stage_orders(shape)[stage]:
        turn = step.chunk // shape.num_stages
        if not step.backward:
            saved[turn] += 1
        seen.setdefault((turn, step.backward), set()).add(tuple(saved))
        if step.backward:
            saved[turn] -= 1
    return tuple(
        Moment(saved=counts, turn=turn, backward=backward)
        for (turn, backward), moments in sorted(seen.items())
        for counts in _undominated(moments)
    )


def _undominated(moments: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    kept: list[tuple[int, ...]] = []
    for counts in sorted(moments, key=lambda counts: (-sum(counts), counts)):
        if not any(all(ours <= theirs for ours, theirs in zip(counts, other, strict=True)) for other in kept):
            kept.append(counts)
    return kept
