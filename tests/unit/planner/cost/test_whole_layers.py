"""Stages of whole layers have room for a chain as soon as trying every split says, and no later."""

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.whole_layers import StageEnds, whole_layers_ns

constants = st.lists(st.integers(0, 60), min_size=1, max_size=4)


@given(constants, st.integers(1, 20), st.integers(1, 7))
def test_no_split_is_done_sooner(constants: list[int], each: int, num_layers: int) -> None:
    found = float(whole_layers_ns(np.array([constants], dtype=float), np.array([float(each)]), num_layers)[0])
    best = soonest(constants, each, num_layers)
    assert found <= best + 1e-9
    if found >= max(constants):
        assert found == pytest.approx(best)


def soonest(constants: list[int], each: int, num_layers: int) -> int:
    """Return the shortest step of any split."""
    return min(
        max(constant + each * (end - start) for constant, (start, end) in zip(constants, pairs, strict=True))
        for ends in combinations_with_replacement(range(num_layers + 1), len(constants) - 1)
        for pairs in [list(pairwise((0, *ends, num_layers)))]
    )


def test_rows_do_not_meet() -> None:
    constants, each = np.array([[0.0, 3.0], [5.0, 0.0]]), np.array([2.0, 4.0])
    together = whole_layers_ns(constants, each, 3)
    alone = [whole_layers_ns(constants[row : row + 1], each[row : row + 1], 3)[0] for row in range(2)]
    assert together.tolist() == alone


def test_layers_that_take_nothing_do_not_divide_by_it() -> None:
    assert whole_layers_ns(np.array([[4.0, 9.0]]), np.zeros(1), 8)[0] <= 9.0


@pytest.mark.parametrize(("waits", "filled"), [(True, [0, 2 + 3, 2 * 2 + 3 + 5]), (False, [0, 0, 0])])
def test_a_stage_waits_for_those_before_it(waits: bool, filled: list[int]) -> None:  # noqa: FBT001
    ends = StageEnds(first_ns=np.array([3.0]), last_ns=np.array([7.0]), between_ns=2)
    found = ends.constants(np.array([5.0]), np.array([10]), 3, waits=waits)
    passes = [10 * (2 + 3), 10 * 2, 10 * (2 + 7)]
    assert found[0].tolist() == [fill + own for fill, own in zip(filled, passes, strict=True)]
