import pytest

from api.pages.timeline_spans import MAX_EVENTS, Span, spans
from tests.unit.api.pages.timelines import event, timeline


def test_a_short_step_is_drawn_whole() -> None:
    (span,) = spans(timeline(num_micro_batches=8))
    assert (span.left, span.right, span.start_seconds) == (0.0, 100.0, 0.0)


def test_a_long_step_is_drawn_as_two_ends_on_one_scale_with_a_gap_between() -> None:
    events = timeline(num_micro_batches=256)
    beginning, ending = spans(events)
    assert ending.end_seconds == max(event.end_seconds for event in events)
    assert beginning.end_seconds < ending.start_seconds
    assert beginning.right < ending.left
    lengths = [span.end_seconds - span.start_seconds for span in (beginning, ending)]
    widths = [span.right - span.left for span in (beginning, ending)]
    assert lengths[0] == pytest.approx(lengths[1])
    assert widths[0] == pytest.approx(widths[1])


@pytest.mark.parametrize("num_stages", [2, 8, 32])
def test_the_beginning_shows_how_the_pipeline_fills_and_the_end_how_it_drains(num_stages: int) -> None:
    events = timeline(num_stages=num_stages, num_micro_batches=512)
    beginning, ending = spans(events)
    first = [event for event in events if event.stage == 0]
    assert any(event.operation == "backward" and beginning.shows(event) for event in first)
    assert any(event.operation == "forward" and ending.shows(event) for event in first)


def test_a_deep_pipeline_never_shows_more_than_a_drawing_holds() -> None:
    events = timeline(num_stages=128, num_micro_batches=256)
    parts = spans(events)
    assert sum(any(span.shows(event) for span in parts) for event in events) <= MAX_EVENTS


def test_moments_outside_a_span_stand_at_its_edges() -> None:
    span = Span(start_seconds=1.0, end_seconds=3.0, left=10.0, right=30.0)
    assert [span.x(moment) for moment in (0.0, 1.0, 2.0, 9.0)] == [10.0, 10.0, 20.0, 30.0]


@pytest.mark.parametrize("length", [0.00037, 0.9, 7.0, 130.0, 86_400.0])
def test_ticks_are_few_round_and_inside(length: float) -> None:
    span = Span(start_seconds=0.3 * length, end_seconds=1.3 * length, left=0.0, right=100.0)
    ticks = list(span.ticks())
    assert 2 <= len(ticks) <= 12
    assert all(span.start_seconds * 0.999 <= tick <= span.end_seconds * 1.001 for tick in ticks)


def test_a_step_without_passes_is_drawn_too() -> None:
    (span,) = spans([event(0, "optimizer", 0.0, 1.0)])
    assert span.end_seconds == 1.0
