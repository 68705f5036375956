import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.calibration_fit import Posterior, fitted

Floats = NDArray[np.float64]

PARTS: Floats = np.array([[8.0, 1.0, 0.0], [2.0, 5.0, 0.0], [4.0, 4.0, 0.0], [1.0, 9.0, 0.0]])
"""Seconds of three kinds in four steps; nothing ever runs the third one."""


def log_steps(logs: Floats) -> Floats:
    return np.asarray(np.log(PARTS @ np.exp(logs)))


def fit(measured: Floats, *, step_error: float = 0.01, prior_error: float = 0.3) -> Posterior:
    return fitted(
        log_steps,
        np.log(measured),
        step_errors=np.full(len(measured), step_error),
        prior_errors=np.full(3, prior_error),
    )


def test_factors_that_steps_show_are_found_with_their_uncertainty() -> None:
    found = fit(PARTS @ np.array([1.3, 0.8, 1.0]))
    assert np.exp(found.logs[:2]) == pytest.approx([1.3, 0.8], rel=0.01)
    assert (found.errors[:2] < 0.02).all()
    assert found.informed.tolist() == [True, True, False]


def test_what_no_step_shows_stays_as_wide_as_it_was() -> None:
    found = fit(PARTS @ np.array([1.3, 0.8, 7.0]))
    assert found.logs[2] == 0
    assert found.errors[2] == pytest.approx(0.3)


def test_one_step_again_and_again_tells_of_its_sum_alone() -> None:
    def one(logs: Floats) -> Floats:
        return np.asarray(np.log(np.tile(np.array([1.0, 1.0, 0.0]), (3, 1)) @ np.exp(logs)))

    found = fitted(one, np.log([2.4] * 3), step_errors=np.full(3, 0.01), prior_errors=np.full(3, 0.3))
    assert np.exp(one(found.logs)) == pytest.approx([2.4] * 3, rel=0.01)
    assert found.logs[0] == pytest.approx(found.logs[1])
    assert found.correlations[0, 1] < -0.9
    # Each by itself is hardly better known than before: what is known is their sum.
    assert found.errors[0] == pytest.approx(0.3 / np.sqrt(2), rel=0.05)


def test_steps_that_contradict_each_other_leave_more_doubt() -> None:
    agreed = fit(PARTS @ np.ones(3))
    apart = fit(PARTS @ np.ones(3) * np.array([1.1, 0.9, 1.1, 0.9]))
    assert (apart.errors[:2] > 2 * agreed.errors[:2]).all()


@given(
    first=st.floats(0.3, 3.0),
    second=st.floats(0.3, 3.0),
    prior_error=st.floats(0.05, 1.0),
    step_error=st.floats(0.005, 0.1),
)
def test_uncertainty_is_never_more_than_before_and_factors_lie_between_one_and_what_steps_ask(
    first: float, second: float, prior_error: float, step_error: float
) -> None:
    measured = PARTS @ np.array([first, second, 1.0])
    found = fit(measured, step_error=step_error, prior_error=prior_error)
    assert (found.errors <= prior_error * (1 + 1e-9)).all()

    def off(logs: Floats) -> float:
        return float(np.abs(np.log(measured) - log_steps(logs)).sum())

    assert off(found.logs) <= off(np.zeros(3)) + 1e-6
