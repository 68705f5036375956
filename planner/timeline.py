"""Every operation of one replayed step, for drawing."""

from collections.abc import Sequence
from typing import Final

from planner.cost.replay import Replay, replay
from planner.cost.schedules import PassKind, stage_orders
from planner.plan import TimelineEvent
from planner.played_plan import PlayedPlan
from planner.units import NANOSECONDS_PER_SECOND

OPERATIONS: Final = {
    PassKind.FORWARD: "forward",
    PassKind.BACKWARD: "backward",
    PassKind.INPUT: "input_gradient",
    PassKind.WEIGHT: "weight_gradient",
}
"""The words of a timeline for passes."""


def timeline(plan: PlayedPlan) -> tuple[TimelineEvent, ...]:
    """Return every operation of the replayed step, stage by stage in order of time."""
    played = replay(plan.problem, plan.played.costs)
    stages = range(plan.problem.shape.num_stages)
    return tuple(event for stage in stages for event in _stage_events(played, stage))


def _stage_events(played: Replay, stage: int) -> Sequence[TimelineEvent]:
    shape = played.problem.shape
    events = [_event(stage, 0, -1, "optimizer", 0, played.update_end_ns[stage])]
    for step in stage_orders(shape)[stage]:
        turn, name = shape.turn_of(step.chunk), OPERATIONS[PassKind(step.kind)]
        start, end = played.start_ns(step), played.end_ns(step)
        events.append(_event(stage, turn, step.micro_batch, name, start, end))
    last = events[-1]
    tail = round(last.end_seconds * NANOSECONDS_PER_SECOND)
    if played.stage_end_ns[stage] > tail:
        events.append(_event(stage, 0, -1, "reduce", tail, played.stage_end_ns[stage]))
    return events


def _event(stage: int, turn: int, micro_batch: int, name: str, start_ns: int, end_ns: int) -> TimelineEvent:
    return TimelineEvent(
        stage=stage,
        virtual_stage=turn,
        micro_batch=micro_batch,
        operation=name,
        start_seconds=start_ns / NANOSECONDS_PER_SECOND,
        end_seconds=end_ns / NANOSECONDS_PER_SECOND,
    )
