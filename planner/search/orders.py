"""How far each chunk of a stage is at a point of the stage's order, by arithmetic instead of a walk."""

from planner.cost.schedules import PipelineShape, warm_up_passes


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


def backwards_before_last_forward(shape: PipelineShape, stage: int) -> int:
    """Return how many backward passes a stage runs before its last forward pass."""
    return max(shape.virtual_stages * shape.num_micro_batches - warm_up_passes(shape, stage) - 1, 0)


def compact_shape(shape: PipelineShape) -> PipelineShape:
    """Return a shape of fewer micro-batches whose stages have the same memory moments.

    Between warm-up and the last groups an order repeats with every group, so whole groups are left
    out: what remains holds the longest warm-up and one full repetition before the end.
    """
    group = shape.group_size or shape.num_stages
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
