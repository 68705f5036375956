"""Paths through a schedule's fixed graph that are usually the longest: one step's time is at least each.

Every path starts at the barrier on stage 0, updates its parameters, fills the pipeline up to some
stage, stays there for its passes, drains back to stage 0 and ends with its reductions. On the way a
path may follow the first micro-batch down to the loss and back before the stage's first backward
pass, and the last one after its last forward pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.cost.critical_path import PathCounts
from planner.cost.pipeline import PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.search.orders import (
    backwards_before_last_forward,
    backwards_by_turn,
    forwards_before_first_backward,
    forwards_by_turn,
)
from planner.strategy import ScheduleName


@dataclass(frozen=True, kw_only=True, slots=True)
class _Body:
    """The passes of a path from the first forward to the last backward pass of chunk 0.

    ``hops`` counts the ways of activations and gradients from stage to stage.
    """

    forward: list[int]
    backward: list[int]
    hops: int


def stage_paths(problem: PipelineProblem, stage: int) -> list[PathCounts]:
    """Return the paths that stay on one stage for most of a step, each with every start and end."""
    if problem.shape.schedule in FILLED_ALONE:
        return [_filled(problem, stage)]
    return [path for body in _bodies(problem.shape, stage) for path in _whole_paths(problem, body)]


FILLED_ALONE: Final = (
    ScheduleName.BREADTH_FIRST,
    ScheduleName.ZB_H1,
    ScheduleName.ZB_V,
    ScheduleName.DUALPIPE_V,
)
"""Schedules of which no more is known than that a stage runs all its passes once its first input is there."""


def _filled(problem: PipelineProblem, stage: int) -> PathCounts:
    """Update the first stage, fill the pipeline up to a stage, run all its passes."""
    shape = problem.shape
    nothing, own = (0,) * shape.num_chunks, set(shape.chunks_of(stage))
    passes = [shape.num_micro_batches if chunk in own else 0 for chunk in range(shape.num_chunks)]
    fill = [1 if chunk < stage else count for chunk, count in enumerate(passes)]
    first = tuple(int(chunk in shape.chunks_of(0)) for chunk in range(shape.num_chunks))
    return PathCounts(
        forward=tuple(fill),
        backward=tuple(passes),
        weight=nothing if shape.schedule.splits_backward else (),
        gather=nothing if problem.gather_overlaps else first,
        reduce=nothing,
        optimizer=first,
        constant_ns=problem.barrier_ns + stage * problem.transfer_ns,
    )


def _bodies(shape: PipelineShape, stage: int) -> Iterator[_Body]:
    yield _through(shape, stage)
    if shape.schedule is ScheduleName.GPIPE:
        yield _all_then_all(shape, stage)
    if stage == shape.num_stages - 1:
        return
    yield _waiting_first(shape, stage)
    yield _waiting_last(shape, stage)
    if backwards_before_last_forward(shape, stage):
        yield _waiting_twice(shape, stage)


def _through(shape: PipelineShape, stage: int) -> _Body:
    """Fill the pipeline, run all passes of the stage, drain."""
    fill = [1 if chunk < stage else 0 for chunk in range(shape.num_chunks)]
    for chunk in _own(shape, stage):
        fill[chunk] = shape.num_micro_batches
    return _Body(forward=fill, backward=list(fill), hops=2 * stage)


def _all_then_all(shape: PipelineShape, stage: int) -> _Body:
    """GPipe: all forward passes of the stage, down to the loss, back, all its backward passes."""
    passes = [1] * shape.num_chunks
    passes[stage] = shape.num_micro_batches
    return _Body(forward=passes, backward=list(passes), hops=2 * (shape.num_chunks - 1))


def _waiting_first(shape: PipelineShape, stage: int) -> _Body:
    """Follow the first micro-batch to the loss and back to the stage, then stay there and drain."""
    entry = shape.num_chunks - shape.num_stages + stage
    begun = forwards_by_turn(shape, forwards_before_first_backward(shape, stage))
    forward = [1] * shape.num_chunks
    backward = [1 if chunk < stage or chunk > entry else 0 for chunk in range(shape.num_chunks)]
    for turn, chunk in enumerate(_own(shape, stage)):
        forward[chunk] += shape.num_micro_batches - begun[turn]
        backward[chunk] = shape.num_micro_batches
    below = shape.num_stages - 1 - stage
    return _Body(forward=forward, backward=backward, hops=shape.num_chunks - 1 + below + stage)


def _waiting_last(shape: PipelineShape, stage: int) -> _Body:
    """Fill up to the stage, stay for all its forward passes, follow the last micro-batch to the end."""
    entry = shape.num_chunks - shape.num_stages + stage
    done = backwards_by_turn(shape, backwards_before_last_forward(shape, stage))
    forward = [1 if chunk < stage or chunk > entry else 0 for chunk in range(shape.num_chunks)]
    backward = [1] * shape.num_chunks
    for turn, chunk in enumerate(_own(shape, stage)):
        forward[chunk] = shape.num_micro_batches
        backward[chunk] += done[turn]
    below = shape.num_stages - 1 - stage
    return _Body(forward=forward, backward=backward, hops=stage + below + shape.num_chunks - 1)


def _waiting_twice(shape: PipelineShape, stage: int) -> _Body:
    """Follow the first micro-batch back to the stage, stay until its last forward, follow that one."""
    entry = shape.num_chunks - shape.num_stages + stage
    begun = forwards_by_turn(shape, forwards_before_first_backward(shape, stage))
    done = backwards_by_turn(shape, backwards_before_last_forward(shape, stage))
    forward = [2 if chunk > entry else 1 for chunk in range(shape.num_chunks)]
    backward = list(forward)
    for turn, chunk in enumerate(_own(shape, stage)):
        forward[chunk] += shape.num_micro_batches - begun[turn]
        backward[chunk] += done[turn]
    below = shape.num_stages - 1 - stage
    return _Body(forward=forward, backward=backward, hops=2 * (shape.num_chunks - 1 + below))


def _own(shape: PipelineShape, stage: int) -> range:
    return range(stage, shape.num_chunks, shape.num_stages)


def _whole_paths(problem: PipelineProblem, body: _Body) -> Iterator[PathCounts]:
    """Return a body with every start and every end."""
    shape, forward, backward = problem.shape, tuple(body.forward), tuple(body.backward)
    nothing, first = (0,) * shape.num_chunks, (1,) + (0,) * (shape.num_chunks - 1)
    own = tuple(int(chunk % shape.num_stages == 0) for chunk in range(shape.num_chunks))
    constant = problem.barrier_ns + problem.tied_ns + _transfers_ns(problem, body)
    starts = [(forward, nothing if problem.gather_overlaps else own, 0)]
    if problem.gather_overlaps and surely_moves(problem, problem.least_gather_ns, problem.first.gather_ns):
        sent = problem.transfer_ns if problem.transfer_blocks and shape.num_stages > 1 else 0
        starts.append(((forward[0] - 1, *forward[1:]), first, problem.gather_bucket_ns - sent))
    ends = [(backward, nothing if problem.reduce_overlaps else own, 0)]
    if problem.reduce_overlaps and surely_moves(problem, problem.least_reduce_ns, problem.first.reduce_ns):
        ends = [
            (backward, nothing, problem.reduce_bucket_ns),
            ((backward[0] - 1, *backward[1:]), first, 0),
        ]
    for going, gather, started_ns in starts:
        for returning, reduce, ended_ns in ends:
            yield PathCounts(
                forward=going,
                backward=returning,
                gather=gather,
                reduce=reduce,
                optimizer=own,
                constant_ns=constant + started_ns + ended_ns,
            )


def surely_moves(problem: PipelineProblem, per_layer_ns: int, fixed_ns: int) -> bool:
    """Whether chunk 0 gathers or reduces something whatever layers it holds."""
    return fixed_ns > 0 or (per_layer_ns > 0 and problem.minimum_layers(0) > 0)


def _transfers_ns(problem: PipelineProblem, body: _Body) -> int:
    if problem.shape.num_stages == 1:
        return 0
    if not problem.transfer_blocks:
        return body.hops * problem.transfer_ns
    return (sum(body.forward[:-1]) + sum(body.backward[1:])) * problem.transfer_ns
