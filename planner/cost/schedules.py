"""The fixed order of forward and backward passes on each stage, for every pipeline schedule.

An order is what one stage executes from the first to the last pass of a step.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from planner.cost.pipeline_shape import (
    BACKWARD,
    FORWARD,
    INPUT,
    WEIGHT,
    Pass,
    PassKind,
    PipelineShape,
)
from planner.cost.zero_bubble import zero_bubble_order
from planner.strategy import ScheduleName

__all__ = [
    "BACKWARD",
    "FORWARD",
    "INPUT",
    "WEIGHT",
    "Moment",
    "Pass",
    "PassKind",
    "PipelineShape",
    "lane_sources",
    "last_kinds",
    "memory_moments",
    "stage_orders",
    "warm_up_passes",
]


@lru_cache(maxsize=64)
def stage_orders(shape: PipelineShape) -> tuple[tuple[Pass, ...], ...]:
    """Return the order of passes of every stage.

    1F1B: Narayanan et al., SC21, section 2.2.1. Interleaved: the same section 2.2.2, with the
    warm-up that Megatron-core and torch.distributed.pipelining both use,
    2 (p - i - 1) + (v - 1) g passes on stage i. Breadth-first: Lamy-Poirier (arXiv 2211.05953), each chunk's
    backward passes from the last micro-batch to the first as torch's ScheduleLoopedBFS runs them.
    Zero-bubble schedules: see `planner.cost.zero_bubble`.
    """
    return tuple(_stage_order(shape, stage) for stage in range(shape.num_stages))


def _stage_order(shape: PipelineShape, stage: int) -> tuple[Pass, ...]:
    if shape.schedule.splits_backward:
        return zero_bubble_order(shape, stage)
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
        case ScheduleName.GPIPE | ScheduleName.BREADTH_FIRST:
            return shape.num_micro_batches * shape.virtual_stages
        case ScheduleName.ONE_FORWARD_ONE_BACKWARD:
            return distance
        case ScheduleName.INTERLEAVED:
            return 2 * distance + (shape.virtual_stages - 1) * (shape.group_size or shape.num_stages)
    raise ValueError(f"{shape.schedule} does not alternate passes after a warm-up")


def _forward_sequence(shape: PipelineShape, stage: int) -> list[Pass]:
    chunks = range(stage, shape.num_chunks, shape.num_stages)
    return [
        Pass(FORWARD, chunk, micro_batch)
        for group in _micro_batch_groups(shape)
        for chunk in chunks
        for micro_batch in group
    ]


def _backward_sequence(shape: PipelineShape, stage: int) -> list[Pass]:
    chunks = range(stage, shape.num_chunks, shape.num_stages)[::-1]
    last_first = shape.schedule is ScheduleName.BREADTH_FIRST
    return [
        Pass(BACKWARD, chunk, micro_batch)
        for group in _micro_batch_groups(shape)
        for chunk in chunks
        for micro_batch in (group[::-1] if last_first else group)
    ]


def _micro_batch_groups(shape: PipelineShape) -> list[range]:
    total = shape.num_micro_batches
    size = shape.group_size or shape.num_stages
    if shape.schedule is ScheduleName.BREADTH_FIRST:
        size = total
    return [range(first, min(first + size, total)) for first in range(0, total, size)]


@lru_cache(maxsize=64)
def lane_sources(shape: PipelineShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return per lane the one whose output its passes take, and one that may have made it instead.

    -1 stands for none. A gradient comes from a backward pass or from one of inputs alone.
    """
    sources, others = [-1] * shape.num_lanes, [-1] * shape.num_lanes
    for chunk in range(1, shape.num_chunks):
        sources[shape.lane(FORWARD, chunk)] = shape.lane(FORWARD, chunk - 1)
        sources[shape.lane(BACKWARD, chunk - 1)] = shape.lane(BACKWARD, chunk)
        if shape.schedule.splits_backward:
            for kind in (BACKWARD, INPUT):
                sources[shape.lane(kind, chunk - 1)] = shape.lane(BACKWARD, chunk)
                others[shape.lane(kind, chunk - 1)] = shape.lane(INPUT, chunk)
    return tuple(sources), tuple(others)


@lru_cache(maxsize=64)
def last_kinds(shape: PipelineShape) -> tuple[int, ...]:
    """Return the kind of each chunk's last pass: the one that completes its gradients."""
    if not shape.schedule.splits_backward:
        return (BACKWARD,) * shape.num_chunks
    kinds = [BACKWARD] * shape.num_chunks
    for order in stage_orders(shape):
        for step in order:
            kinds[step.chunk] = step.kind
    return tuple(kinds)


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a stage's order: saved micro-batches per own chunk, and the pass under way.

    ``saved`` counts the pass under way itself: a forward fills what a backward still holds. ``waiting``
    counts micro-batches per own chunk whose weights have yet to get their gradient, that of the inputs being
    there; empty where one backward pass makes both.
    """

    saved: tuple[int, ...]
    turn: int
    kind: int
    waiting: tuple[int, ...] = ()

    @property
    def backward(self) -> bool:
        """Whether a pass that makes gradients is under way."""
        return self.kind != FORWARD


@lru_cache(maxsize=256)
def memory_moments(shape: PipelineShape, stage: int) -> tuple[Moment, ...]:
    """Return the moments of a stage at which memory can peak: those that no other one dominates.

    A moment dominates another when the same pass is under way and no chunk has fewer saved
    micro-batches, nor fewer that wait. ``saved`` is indexed by the stage's own chunks, 0 to v - 1.
    """
    v = shape.virtual_stages
    held = [0] * (2 * v if shape.schedule.splits_backward else v)
    seen: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for step in stage_orders(shape)[stage]:
        turn = shape.turn_of(step.chunk)
        moments = seen.setdefault((turn, step.kind), set())
        if step.kind == FORWARD:
            held[turn] += 1
        moments.add(tuple(held))
        if step.kind == INPUT:
            # While it runs it turns what was saved into what the gradient of the weights needs.
            held[turn] -= 1
            held[v + turn] += 1
            moments.add(tuple(held))
        elif step.kind == BACKWARD:
            held[turn] -= 1
        elif step.kind == WEIGHT:
            held[v + turn] -= 1
    return tuple(
        Moment(saved=counts[:v], turn=turn, kind=kind, waiting=counts[v:])
        for (turn, kind), moments in sorted(seen.items())
        for counts in _undominated(moments)
    )


def most_kept(shape: PipelineShape, stage: int) -> tuple[int, ...]:
    """Return the most micro-batches that each chunk of a stage keeps for backward at any moment."""
    moments = memory_moments(shape, stage)
    return tuple(max(moment.saved[turn] for moment in moments) for turn in range(shape.virtual_stages))


def _undominated(moments: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    kept: list[tuple[int, ...]] = []
    for counts in sorted(moments, key=lambda counts: (-sum(counts), counts)):
        if not any(all(ours <= theirs for ours, theirs in zip(counts, other, strict=True)) for other in kept):
            kept.append(counts)
    return kept
