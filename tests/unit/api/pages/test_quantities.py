import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pages.quantities import (
    PERCENT_SCALE,
    bytes_scale,
    count,
    magnitude,
    parameters,
    percent,
    rate,
    rounded_count,
    seconds_scale,
    signed_percent,
)

NBSP = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (137.618, "137.6 s"),
        (1.4, "1.400 s"),
        (0.0123456, "12.35 ms"),
        (3.2e-6, "3.200 us"),
        (5400, "5,400 s"),
        (0, "0.000 s"),
    ],
)
def test_a_duration_has_four_digits_and_the_unit_that_suits_it(seconds: float, shown: str) -> None:
    assert str(seconds_scale(seconds).quantity(seconds)) == shown.replace(" ", NBSP)


@pytest.mark.parametrize(
    ("size", "shown"), [(2**36, "64.0 GiB"), (3 * 2**19, "1.5 MiB"), (512, "512 B"), (2**51, "2.0 PiB")]
)
def test_a_size_has_one_decimal_and_the_unit_that_suits_it(size: float, shown: str) -> None:
    assert str(bytes_scale(size).quantity(size)) == shown.replace(" ", NBSP)


def test_a_column_has_one_unit() -> None:
    scale = seconds_scale(2.5)
    assert [scale.number(value) for value in (2.5, 0.03, 0.0)] == ["2.500", "0.030", "0.000"]


@given(st.lists(st.floats(0, 1e4, allow_nan=False), min_size=1, max_size=12))
def test_rounded_parts_add_up_to_the_rounded_total(values: list[float]) -> None:
    scale = seconds_scale(max(sum(values), 1e-3))
    units = [int(re.sub(r"\D", "", number)) for number in scale.parts(values)]
    assert sum(units) == round(sum(values) / scale.base * 10**scale.decimals)


@given(st.lists(st.floats(0, 1e4, allow_nan=False), min_size=1, max_size=12))
def test_no_part_moves_by_a_whole_last_digit(values: list[float]) -> None:
    scale = seconds_scale(max(sum(values), 1e-3))
    step = scale.base / 10**scale.decimals
    for number, value in zip(scale.parts(values), values, strict=True):
        shown = float(number.replace(",", "")) * scale.base
        assert abs(shown - value) <= step * (1 + 1e-6)


def test_shares_add_up_to_a_hundred() -> None:
    assert PERCENT_SCALE.parts([1 / 3, 1 / 3, 1 / 3]) == ["33.4", "33.3", "33.3"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (percent(0.4312), "43.1 %"),
        (percent(0.94, decimals=0), "94 %"),
        (signed_percent(0.0312), "+3.1 %"),
        (signed_percent(-0.0312), "−3.1 %"),
        (count(4120), "4,120"),
        (rounded_count(60958.7), "60,960"),
        (rounded_count(7.4409), "7.441"),
        (rounded_count(0), "0"),
        (str(rate(441.2e12, "FLOP/s")), "441 TFLOP/s"),
        (magnitude(4120), "4,120"),
        (magnitude(1.3e14), "1.3 × 10¹⁴"),
    ],
)
def test_numbers_read_as_people_write_them(shown: str, expected: str) -> None:
    assert shown == expected.replace(" ", NBSP)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (70.554e9, "70.6 billion"),
        (6.9e10, "69.0 billion"),
        (1.008e12, "1.01 trillion"),
        (124.4e6, "124 million"),
        (9000, "9,000"),
    ],
)
def test_parameters_are_said_in_words(number: float, shown: str) -> None:
    assert parameters(number) == shown
