"""How far each chunk of a stage is at a point of the stage's order, by arithmetic instead of a walk."""

from dataclasses import replace
from typing import Final

from planner.cost.schedules import PipelineShape, warm_up_passes
from planner.strategy import ScheduleName

GROUPS_APART: Final = 6
"""Groups of as many micro-batches as there are stages after which no zero-bubble order shows a new moment."""


def forwards_by_turn(shape: PipelineShape, passes: int) -> list[int]:
    """Return how many of a stage's first ``passes`` forward passes each of its own chunks ran."""
    v, m = shape.virtual_stages, shape.num_micro_batches
    group = shape.group_size or shape.num_stages
    whole, rest = divmod(passes, v * group)
    if (whole + 1) * group > m:
        # The last group is smaller: what precedes it, and the part of it that was reached.
        whole = m // group
        rest, group_size = passes - whole * v * group, m - whole * group
    else:
        group_size = group
    return [whole * group + min(max(rest - turn * group_size, 0), group_size) for turn in range(v)]


def backwards_by_turn(shape: PipelineShape, passes: int) -> list[int]:
    """Return how many of a stage's first ``passes`` backward passes each of its own chunks ran."""
    return forwards_by_turn(shape, passes)[::-1]


def forwards_before_first_backward(shape: PipelineShape, stage: int) -> int:
    """Return how many forward passes a stage runs before its first backward pass."""
    return min(warm_up_passes(shape, stage) + 1, shape.virtual_stages * shape.num_micro_batches)


def kept_at_first_backward(shape: PipelineShape, stage: int) -> list[int]:
    """Return how many micro-batches each of a stage's chunks keeps when its first gradient is made."""
    m, p = shape.num_micro_batches, shape.num_stages
    if shape.schedule.folds:
        # The last stage of DualPipeV starts one more before it goes back.
        more = shape.schedule is ScheduleName.DUALPIPE_V and stage == p - 1
        return [min(2 * p - stage - 1 + more, m), min(stage + 1, m)]
    if shape.schedule is ScheduleName.ZB_H1:
        ahead = (shape.virtual_stages - 1) * (shape.group_size or p) + p - stage
        return forwards_by_turn(shape, min(ahead, shape.virtual_stages * m))
    if shape.schedule is ScheduleName.BREADTH_FIRST:
        return [m] * shape.virtual_stages
    return forwards_by_turn(shape, forwards_before_first_backward(shape, stage))


def backwards_before_last_forward(shape: PipelineShape, stage: int) -> int:
    """Return how many backward passes a stage runs before its last forward pass."""
    return max(shape.virtual_stages * shape.num_micro_batches - warm_up_passes(shape, stage) - 1, 0)


def compact_shape(shape: PipelineShape) -> PipelineShape:
    """Return a shape of fewer micro-batches whose stages have the same memory moments.

    Between warm-up and the last groups an order repeats with every group, so whole groups are left
    out: what remains holds the longest warm-up and one full repetition before the end.
    """
    group = shape.group_size or shape.num_stages
    if shape.schedule.splits_backward:
        return _compact_apart(shape)
    if shape.schedule is ScheduleName.BREADTH_FIRST:
        return shape
    longest = warm_up_passes(shape, 0)
    if longest >= shape.num_micro_batches * shape.virtual_stages:
        return shape
    kept = -(-longest // (shape.virtual_stages * group)) + 3
    spare = max(shape.num_micro_batches // group - kept, 0)
    return PipelineShape(
        schedule=shape.schedule,
        num_stages=shape.num_stages,
        virtual_stages=shape.virtual_stages,
        num_micro_batches=shape.num_micro_batches - spare * group,
        group_size=shape.group_size,
    )


def _compact_apart(shape: PipelineShape) -> PipelineShape:
    """Return a zero-bubble shape of fewer micro-batches: a warm-up, some repetitions, the end."""
    groups, rest = divmod(shape.num_micro_batches, shape.num_stages)
    spare = max(groups - GROUPS_APART, 0) * shape.num_stages
    return replace(shape, num_micro_batches=shape.num_micro_batches - spare) if rest or spare else shape
