from decimal import Decimal

import pytest

from api.pages.memory_chart import memory_chart, worst_stage
from tests.unit.api.pages.documents import CAPACITY, GIB, evaluated, prediction

MEMORY = prediction()["memory"]


def test_the_parts_of_a_stage_add_up_to_its_peak_in_numbers_and_on_the_bar() -> None:
    chart = memory_chart(MEMORY, memory_fraction=0.94)
    for row, stage in zip(chart.rows, MEMORY, strict=True):
        assert sum(map(Decimal, row.parts)) == Decimal(row.peak)
        share_of_capacity = sum(segment.width for segment in row.segments) / row.capacity
        assert share_of_capacity == pytest.approx(stage["peak_bytes"] / CAPACITY)


def test_lines_and_whiskers_stand_at_their_share_of_the_capacity() -> None:
    row = memory_chart(MEMORY, memory_fraction=0.94).rows[0]
    assert row.safe / row.capacity == pytest.approx(0.94)
    assert row.interval[0] / row.capacity == pytest.approx(MEMORY[0]["interval_bytes"][0] / CAPACITY)
    assert row.interval[0] < row.interval[1] <= 100


@pytest.mark.parametrize(
    ("excess_bytes", "fits", "verdict", "tone"),
    [
        (-10 * GIB, True, "fits", "good"),
        (-1 * GIB, True, "above the safe line", "warn"),
        (3.1 * GIB, False, "over by 3.1\N{NO-BREAK SPACE}GiB", "bad"),
    ],
)
def test_a_stage_says_whether_it_fits(excess_bytes: float, fits: bool, verdict: str, tone: str) -> None:  # noqa: FBT001
    stage = MEMORY[0] | {"peak_bytes": CAPACITY + excess_bytes, "fits": fits}
    row = memory_chart([stage], memory_fraction=0.94).rows[0]
    assert (row.verdict, row.tone) == (verdict, tone)


def test_everything_stays_on_the_axis_where_a_stage_does_not_fit() -> None:
    chart = memory_chart(evaluated()["prediction"]["memory"], memory_fraction=0.94)
    assert max(max(row.interval[1], row.capacity) for row in chart.rows) < 100
    assert chart.rows[0].tone == "bad"


def test_parts_that_no_stage_has_are_left_out() -> None:
    keys = memory_chart(MEMORY[:1], memory_fraction=0.94).keys
    assert "logits" not in keys
    assert "logits" in memory_chart(MEMORY, memory_fraction=0.94).keys


def test_node_groups_are_named_only_where_there_are_several() -> None:
    assert not memory_chart(MEMORY, memory_fraction=0.94).names_groups
    mixed = [MEMORY[0], MEMORY[1] | {"node_group": "b", "capacity_bytes": 2 * CAPACITY}]
    chart = memory_chart(mixed, memory_fraction=0.94)
    assert chart.names_groups
    assert chart.capacity == "79.6\N{NO-BREAK SPACE}GiB and 159.2\N{NO-BREAK SPACE}GiB"


def test_many_stages_are_drawn_thin() -> None:
    assert not memory_chart(MEMORY, memory_fraction=0.94).is_dense
    assert memory_chart(MEMORY * 8, memory_fraction=0.94).is_dense


def test_the_worst_stage_is_the_one_that_fills_most_of_its_devices() -> None:
    assert worst_stage(MEMORY)["stage"] == 0


def test_a_part_that_is_new_is_shown_under_its_own_name() -> None:
    chart = memory_chart(MEMORY, memory_fraction=0.94)
    assert (chart.name("optimizer"), chart.name("host_staging")) == ("Optimizer states", "Host staging")
