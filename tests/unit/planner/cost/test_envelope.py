import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.envelope import MANY_POINTS, Envelope, Floats

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


def compared(sizes: Floats, seconds: Floats) -> Floats:
    """The envelope by its definition: every point against every other."""
    is_below = (sizes[:, None, :] >= sizes[None, :, :]).all(axis=2)
    above = np.where(is_below, seconds[None, :], -np.inf).max(axis=1)
    below = np.where(is_below.T, seconds[None, :], np.inf).min(axis=1)
    return np.asarray(np.sqrt(above * below))


@given(seed=st.integers(0, 2**31), dims=st.integers(1, 4), most=st.integers(1, 40), count=st.integers(1, 900))
def test_many_points_are_as_compared_one_by_one(seed: int, dims: int, most: int, count: int) -> None:
    chance = np.random.default_rng(seed)
    shapes = chance.integers(1, most + 1, (count, dims)).astype(np.float64)
    seconds = shapes.prod(axis=1) * np.exp(chance.normal(0, 0.3, count))
    envelope = Envelope.of(shapes, seconds)
    assert (envelope.seconds == compared(shapes, seconds)).all()


def test_bounds_of_very_many_points_are_those_of_each() -> None:
    chance = np.random.default_rng(7)
    shapes = chance.integers(1, 300, (MANY_POINTS + 1, 3)).astype(np.float64)
    envelope = Envelope.of(shapes, shapes.prod(axis=1) * np.exp(chance.normal(0, 0.3, len(shapes))))
    for _ in range(100):
        size = chance.integers(1, 330, 3).astype(np.float64)
        low = envelope.seconds[(shapes <= size).all(axis=1)].max(initial=0.0)
        high = envelope.seconds[(shapes >= size).all(axis=1)].min(initial=np.inf)
        assert envelope.clip(0.0, *size.tolist()) == low
        assert envelope.clip(np.inf, *size.tolist()) == high
