import pytest

from api.pages.axis import Axis


def test_figures_stand_in_their_order_within_the_axis() -> None:
    axis = Axis.through([1.0, 100.0], length=300.0)

    assert 0 < axis.place(1.0) < axis.place(10.0) < axis.place(100.0) < 300.0
    assert axis.place(10.0) == pytest.approx(150.0)
    assert axis.figures() == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]


def test_one_figure_stands_in_the_middle() -> None:
    assert Axis.through([5.0], length=100.0).place(5.0) == pytest.approx(50.0)
