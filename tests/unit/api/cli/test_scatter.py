"""Scatter plots of predictions over measurements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cli.scatter import SIDE, scatter_of
from api.pages.axis import MOST_TICKS
from planner.validation.comparison import Comparison

FIGURES = st.floats(1e-6, 1e12)


def compared(predicted: float, measured: float) -> Comparison:
    return Comparison(predicted=predicted, measured=measured, interval=(predicted, predicted))


@given(st.lists(st.builds(compared, FIGURES, FIGURES), min_size=1, max_size=20))
def test_every_point_lies_inside_the_frame(found: list[Comparison]) -> None:
    scatter = scatter_of(found, shown=str)
    assert len(scatter.points) == len(found)
    assert all(0 <= place <= SIDE for point in scatter.points for place in (point.x, point.y))
    assert all(0 <= tick.place <= SIDE for tick in scatter.ticks)


@given(FIGURES, FIGURES)
def test_a_perfect_prediction_lies_on_the_diagonal(one: float, other: float) -> None:
    scatter = scatter_of([compared(one, one), compared(other, other)], shown=str)
    assert all(point.x == pytest.approx(SIDE - point.y) and point.is_covered for point in scatter.points)


def test_too_high_a_prediction_lies_above() -> None:
    (above, below) = scatter_of([compared(2, 1), compared(1, 2)], shown=str).points
    assert above.y < SIDE - above.x
    assert below.y > SIDE - below.x


@pytest.mark.parametrize("measured", [1.2, 30.0, 1e6])
def test_axes_have_a_few_round_figures(measured: float) -> None:
    ticks = scatter_of([compared(1, measured)], shown=lambda figure: f"{figure:g}").ticks
    assert 1 <= len(ticks) <= MOST_TICKS
    assert "1" in {tick.label for tick in ticks}
