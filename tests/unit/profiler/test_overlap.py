from dataclasses import dataclass

import pytest

from profiler.overlap import measure_overlap
from profiler.timing import HostStopwatch, Rules


@dataclass
class Clock:
    """Goes on by what is waited for."""

    now_seconds: float = 0.0

    def now(self) -> float:
        return self.now_seconds

    def take(self, seconds: float) -> None:
        self.now_seconds += seconds


@dataclass
class Sent:
    """A collective that ends at its time, however long others take meanwhile."""

    clock: Clock
    ends_at: float

    def wait(self) -> None:
        self.clock.now_seconds = max(self.clock.now_seconds, self.ends_at)


def alone(own: list[float]) -> list[list[float]]:
    return [own]


def test_collective_is_measured_beside_as_many_kernels_as_last_as_long() -> None:
    clock = Clock()

    overlapped = measure_overlap(
        lambda: Sent(clock=clock, ends_at=clock.now_seconds + 0.1),
        lambda: clock.take(0.02),
        stopwatch=HostStopwatch(now=clock.now),
        rules=Rules(),
        exchange=alone,
        slowest=alone,
    )

    assert overlapped.kernels == 5
    assert overlapped.collective_alone.median_seconds == pytest.approx(0.1)
    assert overlapped.kernels_alone.median_seconds == pytest.approx(0.1)
    assert overlapped.collective_slowdown == pytest.approx(1)
    assert overlapped.kernel_slowdown == pytest.approx(1)


def test_kernels_that_wait_for_the_collective_are_slowed_down() -> None:
    clock = Clock()
    busy_until = [0.0]

    def start() -> Sent:
        busy_until[0] = clock.now_seconds + 0.1
        return Sent(clock=clock, ends_at=busy_until[0])

    def kernel() -> None:
        clock.take(0.04 if clock.now_seconds < busy_until[0] else 0.02)

    overlapped = measure_overlap(
        start,
        kernel,
        stopwatch=HostStopwatch(now=clock.now),
        rules=Rules(),
        exchange=alone,
        slowest=alone,
    )

    assert overlapped.kernel_slowdown == pytest.approx(0.16 / 0.1)
