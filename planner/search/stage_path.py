"""A path of the replay's graph that holds whatever the split: where the master program starts from."""

from planner.cost.critical_path import PathCounts
from planner.cost.pipeline import PipelineProblem
from planner.cost.replay import transfer_after_ns


def stage_path(problem: PipelineProblem, stage: int) -> PathCounts:
    """Return the path through every pass of a stage: down to it first, and back up from it at the end.

    Down: the first forward pass of the chunks of the stages before; up: their last backward pass.
    It starts at the update of stage 0 and ends with that stage.
    """
    shape = problem.shape
    forward, backward = [0] * shape.num_chunks, [0] * shape.num_chunks
    own = range(stage, shape.num_chunks, shape.num_stages)
    for chunk in range(stage):
        forward[chunk] = backward[chunk] = 1
    for chunk in own:
        forward[chunk] = backward[chunk] = shape.num_micro_batches
    return PathCounts(
        forward=tuple(forward),
        backward=tuple(backward),
        gather=(0,) * shape.num_chunks,
        reduce=(0,) * shape.num_chunks,
        optimizer=tuple(int(chunk % shape.num_stages == 0) for chunk in range(shape.num_chunks)),
        constant_ns=problem.barrier_ns + problem.tied_ns + _transfers_ns(problem, stage),
    )


def _transfers_ns(problem: PipelineProblem, stage: int) -> int:
    """Return the transfers on the path: to and from the stage, and its own sends where they block."""
    shape = problem.shape
    down = sum(transfer_after_ns(problem, chunk, backward=False) for chunk in range(stage))
    up = sum(transfer_after_ns(problem, chunk, backward=True) for chunk in range(1, stage + 1))
    if not problem.transfer_blocks:
        return down + up
    own = range(stage, shape.num_chunks, shape.num_stages)
    sends = sum(
        transfer_after_ns(problem, chunk, backward=backward) for chunk in own for backward in (False, True)
    )
    # The last send back up is one of the stage's own.
    last = transfer_after_ns(problem, stage, backward=True)
    return down + up - last + shape.num_micro_batches * sends
