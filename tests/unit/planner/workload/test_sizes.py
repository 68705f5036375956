import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.workload.sizes import UnfitValue, require_probability, require_size, shown


@given(st.integers(1, 10**7))
def test_a_size_in_range_comes_back(size: int) -> None:
    assert require_size("hidden", size) == size


@given(st.floats(0, 1, exclude_max=True))
def test_a_probability_comes_back(probability: float) -> None:
    assert require_probability("dropout", probability) == probability


@given(st.floats() | st.text() | st.booleans() | st.none() | st.integers(max_value=0))
def test_anything_else_is_no_size_and_the_field_is_named(value: object) -> None:
    with pytest.raises(UnfitValue, match="hidden") as caught:
        require_size("hidden", value)
    assert caught.value.name == "hidden"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4096, "4096"),
        ("4096", "'4096'"),
        (float("nan"), "nan"),
        pytest.param(10**5000, "about 2^16610", id="five thousand digits"),
        ("x" * 100, "'" + "x" * 39 + "..."),
    ],
)
def test_a_value_is_quoted_shortly(value: object, text: str) -> None:
    assert shown(value) == text
