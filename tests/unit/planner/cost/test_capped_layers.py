"""Stages of whole layers that memory caps are done no sooner than any way to fill them."""

from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.capped_layers import capped_layers_ns, most_whole_layers

stages = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 4)), min_size=1, max_size=4)


@given(stages=stages, each=st.integers(1, 100), count=st.integers(1, 8))
def test_no_way_to_fill_stages_is_quicker_and_the_best_is_not_far(
    stages: list[tuple[int, int]], each: int, count: int
) -> None:
    ways = [
        max(offset + held * each for (offset, _), held in zip(stages, way, strict=True) if held)
        for way in product(*(range(most + 1) for _, most in stages))
        if sum(way) == count
    ]
    offsets, most = (np.array([own[number] for own in stages])[:, None] for number in (0, 1))
    (bound,) = capped_layers_ns(offsets.astype(np.float64), np.array([float(each)]), most, count, np.zeros(1))
    if not ways:
        assert bound == inf
    else:
        assert bound <= min(ways) + 1e-6
        assert bound >= min(ways) * (1 - 1e-3) - 0.05


def test_what_is_known_to_take_longer_stays_so() -> None:
    (bound,) = capped_layers_ns(np.zeros((2, 1)), np.array([10.0]), np.full((2, 1), 3), 4, np.array([100.0]))
    assert bound == 100.0


@pytest.mark.parametrize(("room", "held", "layers"), [(30.0, 10.0, 3), (29.0, 10.0, 2), (-5.0, 10.0, 0)])
def test_a_stage_holds_whole_layers(room: float, held: float, layers: int) -> None:
    assert most_whole_layers(np.array([room]), np.array([held])).tolist() == [layers]
