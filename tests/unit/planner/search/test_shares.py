"""Shares make the columns of their paths add up to the same, wherever that takes no negative share."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.search.shares import gpipe_shares, pipeline_shares, through_shares

stages = st.integers(1, 12)
micro_batches = st.integers(1, 40)
extras = st.floats(0, 0.05)


@given(stages, micro_batches, extras)
def test_gpipe_paths_add_up_evenly(p: int, m: int, extra: float) -> None:
    rows = np.ones((p, p)) + np.eye(p) * (m - 1)
    assert_even(rows, gpipe_shares(p, m, extra), extra, loose=m == 1)


@given(stages, micro_batches, extras)
def test_1f1b_paths_add_up_evenly(p: int, m: int, extra: float) -> None:
    kept = p - np.arange(p)
    twice = kept < m
    below = np.tril(np.ones((p, p)), -1)
    own = np.where(twice, m - kept + 1, m).astype(float)
    rows = below + np.where(twice[:, None], 2 * below.T, 0.0) + np.diag(own)
    assert_even(rows, pipeline_shares(own, twice, extra), extra, loose=bool((own <= 1).any()))


@given(st.lists(st.floats(10, 1000), min_size=1, max_size=12), extras)
def test_paths_through_one_stage_add_up_evenly(own: list[float], extra: float) -> None:
    rows = np.diag(own)
    counted = np.array([own[0] + extra, *own[1:]])
    assert_even(rows, through_shares(counted, np.full(len(own), extra)), extra, loose=False)


def assert_even(rows: np.ndarray, shares: np.ndarray, extra: float, *, loose: bool) -> None:
    rows[:, 0] += extra
    assert (shares >= 0).all()
    assert shares.sum() > 0
    if not loose and (shares > 0).all():
        columns = shares @ rows
        np.testing.assert_allclose(columns, columns[0], rtol=1e-6)
