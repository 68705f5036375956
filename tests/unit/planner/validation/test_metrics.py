from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.validation import metrics
from planner.validation.comparison import Comparison


def compared(predicted: float, measured: float) -> Comparison:
    return Comparison(predicted=predicted, measured=measured, interval=(0.9 * predicted, 1.1 * predicted))


SECONDS = st.floats(0.01, 1e4)
GROUP = st.lists(st.builds(compared, SECONDS, SECONDS), min_size=2, max_size=12)


def test_of_nothing_there_is_no_figure() -> None:
    assert metrics.median([]) is None
    assert metrics.high_quantile([]) is None
    assert metrics.share([]) is None
    assert metrics.kendall_tau([[compared(1, 1)]]) is None
    assert metrics.regret([[compared(1, 1)]]) is None


@pytest.mark.parametrize(
    ("predicted", "tau"), [((1, 2, 3), 1.0), ((3, 2, 1), -1.0), ((1, 3, 2), 1 / 3), ((1, 1, 1), 0.0)]
)
def test_order_is_counted_by_pairs(predicted: tuple[float, ...], tau: float) -> None:
    group = [compared(guess, truth) for guess, truth in zip(predicted, (10, 20, 30), strict=True)]
    assert metrics.kendall_tau([group]) == pytest.approx(tau)


def test_rows_are_ordered_within_their_group_alone() -> None:
    first, second = [compared(1, 1), compared(2, 2)], [compared(100, 0.1), compared(200, 0.2)]
    assert metrics.kendall_tau([first, second]) == 1.0


def test_equal_measurements_say_nothing_of_the_order() -> None:
    assert metrics.kendall_tau([[compared(1, 5), compared(2, 5), compared(3, 6)]]) == 1.0


@pytest.mark.parametrize(
    ("pairs", "regret"),
    [(((1, 10), (2, 20)), 0.0), (((2, 10), (1, 12)), 0.2), (((1, 10), (1, 12), (2, 30)), 0.1)],
)
def test_regret_is_the_loss_of_the_choice(pairs: tuple[tuple[float, float], ...], regret: float) -> None:
    assert metrics.regret([[compared(*pair) for pair in pairs]]) == pytest.approx(regret)


def test_a_row_alone_is_no_choice() -> None:
    assert metrics.regret([[compared(9, 9)], [compared(2, 10), compared(1, 12)]]) == pytest.approx(0.2)


@given(groups=st.lists(GROUP, max_size=4), factor=st.floats(0.1, 10))
def test_a_constant_factor_changes_neither_order_nor_choice(
    groups: list[list[Comparison]], factor: float
) -> None:
    scaled = [[compared(found.predicted, found.measured * factor) for found in group] for group in groups]
    assert metrics.kendall_tau(scaled) == metrics.kendall_tau(groups)
    assert metrics.regret(scaled) == pytest.approx(metrics.regret(groups))


@given(group=GROUP)
def test_a_perfect_prediction_has_no_regret(group: list[Comparison]) -> None:
    perfect = [compared(found.measured, found.measured) for found in group]
    assert metrics.regret([perfect]) == pytest.approx(0.0, abs=1e-9)
    assert metrics.kendall_tau([perfect]) in {None, 1.0}


def test_noise_is_that_of_one_value() -> None:
    assert metrics.pair_noise([[9.0, 11.0], [5.0]]) == [pytest.approx(0.2 / sqrt(2))]


def test_underestimates_are_those_beyond_five_percent() -> None:
    found = [compared(0.94, 1.0), compared(0.96, 1.0), compared(1.5, 1.0), compared(0.5, 1.0)]
    assert metrics.underestimated_share(found) == 0.5
