"""A replayed step as a trace."""

from api.schemas.trace import trace_document
from planner.plan import TimelineEvent


def test_operations_stand_on_the_line_of_their_stage_in_microseconds() -> None:
    event = TimelineEvent(
        stage=1, virtual_stage=0, micro_batch=3, operation="forward", start_seconds=0.5, end_seconds=0.75
    )
    document = trace_document([event])
    operation = document["traceEvents"][-1]
    assert operation["name"] == "forward 3"
    assert (operation["ts"], operation["dur"], operation["tid"]) == (500_000, 250_000, 1)
    names = [entry["args"]["name"] for entry in document["traceEvents"] if entry["name"] == "thread_name"]
    assert names == ["stage 1"]
