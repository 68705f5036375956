import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from planner.cost.surface import Surface, fill_along, left_out, monotone, running_maximum, running_minimum

AXES = (np.log([1.0, 4.0, 64.0]), np.log([2.0, 8.0]))
grids = arrays.arrays(np.float64, (3, 2), elements=st.floats(-5, 5))


def proportional(power: float = 1.0) -> Surface:
    """seconds = a * b^power at the nodes."""
    return Surface(log_axes=AXES, log_seconds=np.add.outer(AXES[0], power * AXES[1]), growth=(1.0, power))


@given(st.floats(1, 1e6), st.floats(2, 1e6))
def test_a_product_of_powers_is_met_everywhere_above_the_lower_edge(first: float, second: float) -> None:
    assert proportional()(first, second) == pytest.approx(first * second, rel=1e-9)
    assert proportional(2.0)(first, second) == pytest.approx(first * second**2, rel=1e-9)


def test_below_the_grid_its_edge_holds() -> None:
    assert proportional()(0.01, 0.5) == pytest.approx(1.0 * 2.0)


@given(grids, st.floats(0.1, 1e4), st.floats(0.1, 1e4), st.floats(1, 100))
def test_a_surface_over_monotone_nodes_is_monotone(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], first: float, second: float, factor: float
) -> None:
    surface = Surface(log_axes=AXES, log_seconds=monotone(values))
    here = surface(first, second) * (1 - 1e-9)
    assert surface(first * factor, second) >= here
    assert surface(first, second * factor) >= here


@given(grids)
def test_the_monotone_values_lie_between_the_running_bounds(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> None:
    result = monotone(values)
    assert (running_minimum(values) <= result).all()
    assert (result <= running_maximum(values)).all()
    for axis in range(values.ndim):
        assert (np.diff(result, axis=axis) >= 0).all()
    assert monotone(result) == pytest.approx(result)


def test_gaps_are_filled_by_straight_lines() -> None:
    values = np.array([[0.0, 1.0], [np.nan, 2.0], [3.0, np.nan]])
    filled = fill_along(values, AXES)
    share = AXES[0][1] / AXES[0][2]
    # The line along the first axis gives 3 share, along the second the only neighbour gives 2.
    assert filled[1, 0] == pytest.approx((3 * share + 2) / 2)
    assert filled[2, 1] == pytest.approx((2 + 3) / 2)
    assert filled[0].tolist() == [0.0, 1.0]


def test_gaps_that_no_line_reaches_are_filled_in_turn() -> None:
    values = np.full((3, 2), np.nan)
    values[0, 0] = 7.0
    assert fill_along(values, AXES).tolist() == [[7.0, 7.0]] * 3


def test_an_empty_grid_deviates_from_nothing() -> None:
    assert not fill_along(np.full((3, 2), np.nan), AXES).any()


def test_a_left_out_node_is_found_from_its_neighbours() -> None:
    values = np.array([[0.0, 1.0], [9.0, 2.0], [3.0, 4.0]])
    found = left_out(values, AXES)
    share = AXES[0][1] / AXES[0][2]
    assert found[1, 0] == pytest.approx(3 * share)
    assert np.isnan(found[0]).all()
    assert np.isnan(found[2]).all()
