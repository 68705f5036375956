"""How long a call takes: warm-up, repeats until its median is known well enough, median and spread."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from planner.units import Seconds

Call = Callable[[], object]

Exchange = Callable[[list[Seconds]], list[list[Seconds]]]
"""Hands figures to every process that measures together; returns what each gave, in order of rank."""

CONFIDENCE_DEVIATIONS = 1.96
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""

DEVIATION_PER_MEDIAN_DEVIATION = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation, 1 / 0.6745."""

MIN_SAMPLES_FOR_SPREAD = 3
"""Of two samples the median lies halfway, and says nothing of how far a third would be."""

MAX_CALLS_PER_SAMPLE = 2**16
"""Where a clock that stands still ends the search for a sample that is long enough."""


class Work(Protocol):
    """A collective that was started and goes on by itself."""

    def wait(self) -> object:
        """Wait until it is done, or make the device wait."""
        ...


Start = Callable[[], Work]


@dataclass(frozen=True, kw_only=True, slots=True)
class AtOnce:
    """How long a collective took, and the calls that ran meanwhile, all of them together."""

    collective_seconds: Seconds
    calls_seconds: Seconds


class Stopwatch(Protocol):
    """Times a number of calls in a row: by the clock of the host, or by events on a device."""

    def together(self, start: Start, call: Call, *, times: int) -> AtOnce:
        """Return how long a collective takes, and ``times`` calls that run from when it starts."""
        ...

    def seconds(self, call: Call, *, times: int) -> Seconds:
        """Return how long ``times`` calls in a row take, all of them together."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class HostStopwatch:
    """Reads a monotonic clock of the host, in seconds, before and after."""

    now: Callable[[], Seconds] = time.perf_counter

    def seconds(self, call: Call, *, times: int) -> Seconds:
        """Return how long ``times`` calls in a row take, all of them together."""
        started = self.now()
        for _ in range(times):
            call()
        return self.now() - started

    def together(self, start: Start, call: Call, *, times: int) -> AtOnce:
        """Return how long a collective takes, and ``times`` calls that run from when it starts.

        A collective that ends before the calls do counts as long as they: nobody looks meanwhile.
        """
        started = self.now()
        work = start()
        for _ in range(times):
            call()
        called = self.now()
        work.wait()
        return AtOnce(collective_seconds=self.now() - started, calls_seconds=called - started)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """When to stop repeating: the median is known to ``relative_confidence``, or time is up.

    ``relative_confidence`` is half the width of the median's 95 % interval over the median;
    ``seconds_limit`` bounds the repeats of one call, without its warm-up; a sample repeats a short
    call until it lasts ``sample_seconds``, so that the clock's own cost disappears.
    """

    relative_confidence: float = 0.02
    seconds_limit: Seconds = 0.5
    sample_seconds: Seconds = 2e-3
    max_samples_per_round: int = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """The samples of one call, each in seconds per call, from every process that measured.

    ``by_rank`` has them once more by process, where each gave its own.
    """

    samples: tuple[Seconds, ...]
    by_rank: tuple[tuple[Seconds, ...], ...] = ()

    @classmethod
    def of(cls, by_rank: Sequence[Sequence[Seconds]]) -> "Timing":
        """Return the timing made of each process's samples."""
        return cls(samples=tuple(s for given in by_rank for s in given), by_rank=tuple(map(tuple, by_rank)))

    @property
    def median_seconds(self) -> Seconds:
        """The middle sample."""
        return statistics.median(self.samples)

    @property
    def spread_seconds(self) -> Seconds | None:
        """The standard deviation of one sample, from the median absolute deviation; None if unknown."""
        if len(self.samples) < MIN_SAMPLES_FOR_SPREAD:
            return None
        median = self.median_seconds
        return DEVIATION_PER_MEDIAN_DEVIATION * statistics.median(abs(s - median) for s in self.samples)

    @property
    def relative_half_width(self) -> float:
        """Half the 95 % interval of the median over the median, infinite while too few samples bound it.

        The interval runs between the order statistics n/2 - 0.98 sqrt(n) and 1 + n/2 + 0.98 sqrt(n),
        the normal approximation of the binomial; it assumes nothing of how samples are distributed.
        """
        count = len(self.samples)
        reach = CONFIDENCE_DEVIATIONS * math.sqrt(count) / 2
        lower, upper = math.floor(count / 2 - reach), math.ceil(1 + count / 2 + reach)
        if lower < 1 or upper > count:
            return math.inf
        ordered = sorted(self.samples)
        width = ordered[upper - 1] - ordered[lower - 1]
        return width / 2 / self.median_seconds if width else 0.0


def measure(call: Call, *, stopwatch: Stopwatch, rules: Rules, exchange: Exchange) -> Timing:
    """Return the timing of a call, repeated at the same time on every process of the exchange.

    Every process decides from the same exchanged figures, so all of them call equally often and
    none runs while another has already stopped. Whatever the call raises passes through.
    """
    calls_per_sample, expected = _warm_up(call, stopwatch=stopwatch, rules=rules, exchange=exchange)
    samples_per_round = _samples_per_round(expected * calls_per_sample, rules=rules)
    by_rank: list[list[Seconds]] = []
    spent: Seconds = 0.0
    while True:
        own = [stopwatch.seconds(call, times=calls_per_sample) for _ in range(samples_per_round)]
        of_ranks = exchange(own)
        by_rank = by_rank or [[] for _ in of_ranks]
        for samples, given in zip(by_rank, of_ranks, strict=True):
            samples += [sample / calls_per_sample for sample in given]
        spent += max(sum(given) for given in of_ranks)
        timing = Timing.of(by_rank)
        if spent >= rules.seconds_limit or timing.relative_half_width <= rules.relative_confidence:
            return timing


def _warm_up(call: Call, *, stopwatch: Stopwatch, rules: Rules, exchange: Exchange) -> tuple[int, Seconds]:
    """Call until nothing is done for the first time; return calls per sample and seconds per call."""
    first = max(max(given) for given in exchange([stopwatch.seconds(call, times=1)]))
    if first >= rules.seconds_limit:
        return 1, first
    times = 1
    while True:
        elapsed = max(max(given) for given in exchange([stopwatch.seconds(call, times=times)]))
        if elapsed >= rules.sample_seconds or times >= MAX_CALLS_PER_SAMPLE:
            return times, elapsed / times
        needed = math.ceil(times * rules.sample_seconds / elapsed) if elapsed > 0 else MAX_CALLS_PER_SAMPLE
        times = min(MAX_CALLS_PER_SAMPLE, max(2 * times, needed))


def _samples_per_round(seconds_per_sample: Seconds, *, rules: Rules) -> int:
    """Return as many samples as a quarter of the time holds, so that a slow call ends near its limit."""
    if seconds_per_sample <= 0:
        return rules.max_samples_per_round
    return max(1, min(rules.max_samples_per_round, int(rules.seconds_limit / 4 / seconds_per_sample)))
