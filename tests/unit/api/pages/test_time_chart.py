from decimal import Decimal

import pytest

from api.pages.time_chart import part_name, time_chart
from tests.unit.api.pages.documents import BREAKDOWN, prediction


def test_the_parts_add_up_to_the_step_time_to_the_last_digit_shown() -> None:
    chart = time_chart(prediction())
    assert sum(Decimal(part.number) for part in chart.parts) == Decimal(chart.total.number)
    assert sum(Decimal(part.share) for part in chart.parts) == 100


def test_the_bar_is_as_long_as_the_step() -> None:
    assert sum(segment.width for segment in time_chart(prediction()).segments) == pytest.approx(100)


def test_every_cause_has_a_row_and_only_what_takes_time_has_a_segment() -> None:
    chart = time_chart(prediction())
    assert [part.key for part in chart.parts] == list(BREAKDOWN)
    assert [segment.key for segment in chart.segments] == [key for key, value in BREAKDOWN.items() if value]
    assert {part.key for part in chart.parts if part.is_nothing} == {
        "context_parallel",
        "expert_parallel",
        "offload",
    }


def test_short_steps_are_told_in_milliseconds() -> None:
    chart = time_chart(prediction(slower=0.001))
    assert (chart.unit, chart.total.number) == ("ms", "137.6")


def test_a_cause_that_is_new_is_shown_under_its_own_name() -> None:
    assert part_name("loss_scaling") == ("Loss scaling", "")
