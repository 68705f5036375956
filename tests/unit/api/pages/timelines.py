"""Timelines of real pipeline schedules, played with made-up durations, for the pages to draw."""

from collections.abc import Iterator

from planner.cost.schedules import Pass, PassKind, PipelineShape, stage_orders
from planner.plan import TimelineEvent
from planner.strategy import ScheduleName

FORWARD_SECONDS = 0.036
BACKWARD_SECONDS = 0.079
UPDATE_SECONDS = 0.05
GATHER_SECONDS = 0.04
REDUCE_SECONDS = 0.06


OPERATIONS = {
    PassKind.FORWARD: ("forward", FORWARD_SECONDS),
    PassKind.BACKWARD: ("backward", BACKWARD_SECONDS),
    PassKind.INPUT: ("input_gradient", BACKWARD_SECONDS / 2),
    PassKind.WEIGHT: ("weight_gradient", BACKWARD_SECONDS / 2),
}


def timeline(
    *,
    num_stages: int = 4,
    virtual_stages: int = 1,
    num_micro_batches: int = 8,
    schedule: ScheduleName | None = None,
) -> tuple[TimelineEvent, ...]:
    """Return the events of one step: update, gathers beside the first passes, passes, reductions."""
    usual = ScheduleName.INTERLEAVED if virtual_stages > 1 else ScheduleName.ONE_FORWARD_ONE_BACKWARD
    schedule = schedule or usual
    shape = PipelineShape(
        schedule=schedule,
        num_stages=num_stages,
        virtual_stages=virtual_stages,
        num_micro_batches=num_micro_batches,
    )
    passes = tuple(_passes(shape))
    last = {event.stage: event.end_seconds for event in passes}
    updates = (event(stage, "optimizer", 0.0, UPDATE_SECONDS) for stage in range(num_stages))
    gathers = (event(stage, "gather", UPDATE_SECONDS, GATHER_SECONDS) for stage in range(num_stages))
    reductions = (
        event(stage, "reduce", end - REDUCE_SECONDS / 2, REDUCE_SECONDS) for stage, end in last.items()
    )
    return (*updates, *gathers, *passes, *reductions)


def event(
    stage: int, operation: str, start: float, length: float, *, chunk: int = 0, micro_batch: int = 0
) -> TimelineEvent:
    """Return one event."""
    return TimelineEvent(
        stage=stage,
        virtual_stage=chunk,
        micro_batch=micro_batch,
        operation=operation,
        start_seconds=start,
        end_seconds=start + length,
    )


def _passes(shape: PipelineShape) -> Iterator[TimelineEvent]:
    """Play every stage's order, each pass as soon as its stage is free and its input is there."""
    orders = [list(order)[::-1] for order in stage_orders(shape)]
    free = [UPDATE_SECONDS] * shape.num_stages
    ends: dict[Pass, float] = {}
    while any(orders):
        for stage, order in enumerate(orders):
            while order and all(source in ends for source in _sources(order[-1], shape)):
                step = order.pop()
                start = max([free[stage], *(ends[source] for source in _sources(step, shape))])
                name, length = OPERATIONS[PassKind(step.kind)]
                free[stage] = ends[step] = start + length
                chunk = step.chunk // shape.num_stages
                yield event(stage, name, start, length, chunk=chunk, micro_batch=step.micro_batch)


def _sources(step: Pass, shape: PipelineShape) -> list[Pass]:
    """Return the passes that must have ended before this one."""
    before = step.chunk + 1 if step.backward else step.chunk - 1
    if step.kind == PassKind.WEIGHT:
        return [step._replace(kind=PassKind.INPUT)]
    if step.backward and before == shape.num_chunks:
        return [step._replace(kind=PassKind.FORWARD)]
    return [step._replace(chunk=before)] if before >= 0 else []
