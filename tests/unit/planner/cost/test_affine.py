import numpy as np
import pytest

from planner.cost.affine import fit_nonnegative

SIZES = np.array([1.0, 2.0, 5.0, 9.0])
ONES = np.ones(4)


def test_what_is_affine_is_found() -> None:
    assert fit_nonnegative([ONES, SIZES], 3.0 + 2.0 * SIZES, needed=1) == pytest.approx([3.0, 2.0])


def test_nothing_negative_is_ever_found() -> None:
    start, slope = fit_nonnegative([ONES, SIZES], 3.0 * SIZES - 1.0, needed=1).tolist()
    assert start == 0.0
    assert slope > 0


def test_the_needed_column_always_counts() -> None:
    start, slope = fit_nonnegative([ONES, SIZES], np.array([4.0, 4.0, 4.0, 3.9]), needed=1).tolist()
    assert start >= 0
    assert slope > 0
