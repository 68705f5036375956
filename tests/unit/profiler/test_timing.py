import math
import statistics
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.timing import HostStopwatch, Rules, Timing, measure


@dataclass
class FakeClock:
    """Stands still but for what a call takes."""

    now_seconds: float = 0.0
    calls: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.now_seconds

    def take(self, seconds: float) -> None:
        self.calls.append(seconds)
        self.now_seconds += seconds


def alone(own: list[float]) -> list[list[float]]:
    return [own]


def test_steady_call_is_known_after_one_round() -> None:
    clock = FakeClock()

    timing = measure(
        lambda: clock.take(0.01), stopwatch=HostStopwatch(now=clock.now), rules=Rules(), exchange=alone
    )

    assert timing.median_seconds == pytest.approx(0.01)
    assert timing.spread_seconds == pytest.approx(0, abs=1e-9)
    assert timing.relative_half_width == pytest.approx(0, abs=1e-9)
    assert len(timing.samples) == Rules().max_samples_per_round


def test_what_is_done_for_the_first_time_is_not_counted() -> None:
    clock = FakeClock()

    timing = measure(
        lambda: clock.take(0.01 if clock.calls else 0.4),
        stopwatch=HostStopwatch(now=clock.now),
        rules=Rules(),
        exchange=alone,
    )

    assert max(timing.samples) == pytest.approx(0.01)


def test_short_call_is_repeated_within_a_sample() -> None:
    clock = FakeClock()
    rules = Rules(sample_seconds=1e-3)

    timing = measure(
        lambda: clock.take(1e-6), stopwatch=HostStopwatch(now=clock.now), rules=rules, exchange=alone
    )

    assert timing.median_seconds == pytest.approx(1e-6)
    assert len(clock.calls) / len(timing.samples) >= rules.sample_seconds / 1e-6


def test_restless_call_ends_at_the_time_limit() -> None:
    clock = FakeClock()
    rules = Rules(relative_confidence=1e-6, seconds_limit=1.0)

    timing = measure(
        lambda: clock.take(0.01 * (1 + len(clock.calls) % 7)),
        stopwatch=HostStopwatch(now=clock.now),
        rules=rules,
        exchange=alone,
    )

    spent = sum(timing.samples)
    assert rules.seconds_limit <= spent < 2 * rules.seconds_limit
    assert timing.relative_half_width > rules.relative_confidence


def test_call_beyond_the_limit_is_measured_once_after_its_warm_up() -> None:
    clock = FakeClock()

    timing = measure(
        lambda: clock.take(30.0),
        stopwatch=HostStopwatch(now=clock.now),
        rules=Rules(seconds_limit=0.5),
        exchange=alone,
    )

    assert timing.samples == (30.0,)
    assert timing.spread_seconds is None
    assert clock.calls == [30.0, 30.0]


def test_clock_that_stands_still_ends_nevertheless() -> None:
    timing = measure(lambda: None, stopwatch=HostStopwatch(now=lambda: 0.0), rules=Rules(), exchange=alone)

    assert timing.median_seconds == 0


def test_samples_of_every_process_count_and_the_slowest_sets_the_pace() -> None:
    clock = FakeClock()
    rules = Rules(seconds_limit=0.5, relative_confidence=0.0)

    timing = measure(
        lambda: clock.take(0.01),
        stopwatch=HostStopwatch(now=clock.now),
        rules=rules,
        exchange=lambda own: [own, [3 * seconds for seconds in own]],
    )

    assert sorted({round(sample, 6) for sample in timing.samples}) == [0.01, 0.03]
    assert sum(sample for sample in timing.samples if sample > 0.02) == pytest.approx(0.5, rel=0.5)


def test_what_the_call_raises_passes_through() -> None:
    def fail() -> None:
        raise MemoryError("no more")

    with pytest.raises(MemoryError, match="no more"):
        measure(fail, stopwatch=HostStopwatch(), rules=Rules(), exchange=alone)


@pytest.mark.parametrize(
    ("samples", "half_width"),
    [
        ((1.0,), math.inf),
        ((1.0,) * 5, math.inf),
        ((1.0,) * 8, 0.0),
        ((1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.2), 0.1),
    ],
)
def test_interval_of_the_median(samples: tuple[float, ...], half_width: float) -> None:
    assert Timing(samples=samples).relative_half_width == pytest.approx(half_width)


def test_one_outlier_moves_neither_median_nor_spread_much() -> None:
    timing = Timing(samples=(1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 50.0))

    assert timing.median_seconds == 1.0
    assert timing.spread_seconds is not None
    assert timing.spread_seconds < 0.05


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=50))
def test_median_lies_among_the_samples_and_spread_is_none_or_not_negative(samples: list[float]) -> None:
    timing = Timing(samples=tuple(samples))

    assert min(samples) <= timing.median_seconds <= max(samples)
    assert timing.median_seconds == statistics.median(samples)
    assert timing.spread_seconds is None or timing.spread_seconds >= 0
    assert timing.relative_half_width >= 0
