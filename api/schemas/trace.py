"""A replayed step as a trace: the JSON that Perfetto and Chrome's tracing page open."""

from collections.abc import Sequence
from typing import Any, Final

from planner.plan import TimelineEvent

MICROSECONDS_PER_SECOND: Final = 1e6
"""Traces count in microseconds."""


def trace_document(events: Sequence[TimelineEvent]) -> dict[str, Any]:
    """Return a trace with one line for each stage."""
    stages = sorted({event.stage for event in events})
    names = [_metadata("thread_name", f"stage {stage}", stage=stage) for stage in stages]
    process = _metadata("process_name", "one training step", stage=0)
    return {"displayTimeUnit": "ms", "traceEvents": [process, *names, *map(_operation, events)]}


def _metadata(name: str, value: str, *, stage: int) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": 0, "tid": stage, "args": {"name": value}}


def _operation(event: TimelineEvent) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"{event.operation} {event.micro_batch}",
        "cat": event.operation,
        "pid": 0,
        "tid": event.stage,
        "ts": event.start_seconds * MICROSECONDS_PER_SECOND,
        "dur": (event.end_seconds - event.start_seconds) * MICROSECONDS_PER_SECOND,
        "args": {"micro_batch": event.micro_batch, "virtual_stage": event.virtual_stage},
    }
