import re
from itertools import pairwise
from typing import Any

import pytest

from api.pages.timeline_blocks import MIN_ROW, Block, Rows, blocks, css_class, numbers, paths, rows_for
from api.pages.timeline_spans import spans
from planner.plan import TimelineEvent
from tests.unit.api.pages.timelines import event, timeline

SHAPES = [
    {"num_stages": 1, "num_micro_batches": 4},
    {"num_stages": 4, "num_micro_batches": 8},
    {"num_stages": 4, "virtual_stages": 5, "num_micro_batches": 256},
    {"num_stages": 16, "num_micro_batches": 64},
    {"num_stages": 64, "num_micro_batches": 128},
]


def _drawn(events: tuple[TimelineEvent, ...]) -> tuple[list[Block], Rows]:
    rows = rows_for(events)
    return list(blocks(events, spans=spans(events), rows=rows)), rows


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_of_a_lane_never_overlap(shape: dict[str, Any]) -> None:
    drawn, _ = _drawn(timeline(**shape))
    lanes: dict[int, list[Block]] = {}
    for block in drawn:
        lanes.setdefault(block.y, []).append(block)
    for lane in lanes.values():
        ordered = sorted(lane, key=lambda block: block.x)
        assert all(left.x + left.width <= right.x for left, right in pairwise(ordered))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_block_stays_in_the_row_of_its_stage(shape: dict[str, Any]) -> None:
    drawn, rows = _drawn(timeline(**shape))
    for block in drawn:
        top = block.event.stage * rows.pitch
        assert top <= block.y
        assert block.y + block.height <= top + rows.height


def test_widths_are_to_scale() -> None:
    drawn, _ = _drawn(timeline(num_micro_batches=8))
    forward, backward = (
        next(block.width for block in drawn if block.event.operation == name)
        for name in ("forward", "backward")
    )
    assert backward / forward == pytest.approx(0.079 / 0.036, rel=0.01)


def test_rows_get_lower_with_more_stages_and_lose_their_side_lane() -> None:
    few, many = rows_for(timeline(num_stages=4)), rows_for(timeline(num_stages=128, num_micro_batches=4))
    assert few.height > many.height >= MIN_ROW
    assert few.side_lane > 0
    assert many.side_lane == 0


def test_passes_alone_are_drawn_where_there_is_no_side_lane() -> None:
    drawn, _ = _drawn(timeline(num_stages=64, num_micro_batches=4))
    assert {block.event.operation for block in drawn} == {"optimizer", "forward", "backward"}


def test_an_event_that_reaches_over_the_gap_is_cut_at_both_edges() -> None:
    events = timeline(num_micro_batches=256)
    end = max(one.end_seconds for one in events)
    rows = rows_for(events)
    whole_step = event(0, "forward", 0.0, end)
    parts = list(blocks([whole_step], spans=spans(events), rows=rows))
    assert [(part.x, part.x + part.width) for part in parts] == [(0, 9600), (10400, 20000)]


@pytest.mark.parametrize(
    ("operation", "chunk", "css"),
    [
        ("forward", 0, "f0"),
        ("backward", 4, "b4"),
        ("forward", 7, "f1"),
        ("optimizer", 0, "optimizer"),
        ('"><script>', 0, "other"),
    ],
)
def test_classes_come_from_a_closed_set(operation: str, chunk: int, css: str) -> None:
    assert css_class(event(0, operation, 0.0, 1.0, chunk=chunk)) == css


def test_paths_hold_nothing_but_moves_and_lines() -> None:
    drawn, _ = _drawn(timeline(num_micro_batches=8))
    for data in paths(drawn).values():
        assert re.fullmatch(r"(M\d+ \d+h\d+v\d+h-\d+z)+", data)


def test_a_number_has_room_in_its_block_at_its_zoom() -> None:
    drawn, _ = _drawn(timeline(num_micro_batches=8))
    shown = numbers(drawn)
    assert {number.text for number in shown} == set("01234567")
    assert {number.zoom for number in shown} == {1}
    narrow, _ = _drawn(timeline(num_micro_batches=256))
    assert {number.zoom for number in numbers(narrow)} > {1}


def test_a_number_too_wide_for_any_zoom_is_left_out() -> None:
    hair = Block(
        event=event(0, "forward", 0.0, 1.0, micro_batch=1234), css="f0", x=0, width=9, y=0, height=24
    )
    assert numbers([hair]) == ()
