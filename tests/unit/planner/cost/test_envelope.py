import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.envelope import MOST_COMPARED, Envelope

sizes = st.tuples(*[st.integers(1, 50)] * 3)
points = st.dictionaries(sizes, st.floats(0.01, 100), max_size=12)


def envelope_of(times: dict[tuple[int, int, int], float]) -> Envelope:
    shapes = np.array(list(times), dtype=np.int64).reshape(-1, 3)
    return Envelope.of(shapes, np.array(list(times.values())))


@given(points, sizes, sizes, st.floats(0.01, 100))
def test_clipping_keeps_a_monotone_estimate_monotone(
    times: dict[tuple[int, int, int], float],
    shape: tuple[int, int, int],
    more: tuple[int, int, int],
    least: float,
) -> None:
    envelope = envelope_of(times)
    larger = tuple(size + extra for size, extra in zip(shape, more, strict=True))
    here = envelope.clip(least * sum(shape), *shape)
    assert envelope.clip(least * sum(larger), *larger) >= here * (1 - 1e-12)


@given(points)
def test_points_that_agree_are_met(times: dict[tuple[int, int, int], float]) -> None:
    agreeing = {shape: float(sum(shape)) for shape in times}
    envelope = envelope_of(agreeing)
    for shape, seconds in agreeing.items():
        assert envelope.clip(0.001, *shape) == pytest.approx(seconds)
        assert envelope.clip(1e9, *shape) == pytest.approx(seconds)


def test_points_that_contradict_each_other_meet_in_the_middle() -> None:
    envelope = envelope_of({(1, 1, 1): 4.0, (2, 2, 2): 1.0})
    assert envelope.clip(1e9, 1, 1, 1) == pytest.approx(2.0)
    assert envelope.clip(1e-9, 2, 2, 2) == pytest.approx(2.0)


def test_without_points_an_estimate_stands() -> None:
    assert envelope_of({}).clip(3.0, 1, 2, 3) == 3.0


def test_many_points_are_compared_block_by_block() -> None:
    shapes = np.array([(i % 17 + 1, i % 19 + 1, i % 23 + 1) for i in range(6000)], dtype=np.int64)
    envelope = Envelope.of(shapes, shapes.sum(axis=1).astype(np.float64))
    assert len(shapes) * shapes.size > MOST_COMPARED
    assert envelope.seconds == pytest.approx(shapes.sum(axis=1))
