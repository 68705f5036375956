"""What came of measuring something: times, times of two things at once, or why there are none."""

import statistics
from dataclasses import dataclass, replace

from planner.units import Seconds
from profiler.processes import Failure
from profiler.shapes import Wanted
from profiler.timing import Timing

KEPT_SAMPLES = 64
"""Of each process; more are thinned out, their quantiles kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlapped:
    """A collective and ``kernels`` calls of a kernel: each by itself, then both at once.

    The kernel's times are those of all its calls together.
    """

    kernels: int
    collective_alone: Timing
    kernels_alone: Timing
    collective_together: Timing
    kernels_together: Timing

    @property
    def collective_slowdown(self) -> float:
        """How many times as long the collective takes while the kernels run."""
        return self.collective_together.median_seconds / self.collective_alone.median_seconds

    @property
    def kernel_slowdown(self) -> float:
        """How many times as long the kernels take while the collective runs."""
        return self.kernels_together.median_seconds / self.kernels_alone.median_seconds


Outcome = Timing | Overlapped | Failure


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The outcome of one thing that was wanted, from ``runs`` runs together; ``run`` names the last."""

    wanted: Wanted
    outcome: Outcome
    run: str
    runs: int = 1

    def refined(self, newer: "Result") -> "Result":
        """Return what both say together.

        Samples of all runs count alike; a failure gives way to figures, whichever came first.
        """
        if isinstance(newer.outcome, Failure):
            return newer if isinstance(self.outcome, Failure) else self
        if isinstance(self.outcome, Timing) and isinstance(newer.outcome, Timing):
            both = pooled(self.outcome, newer.outcome)
            return replace(newer, outcome=both, runs=self.runs + newer.runs)
        return newer


def pooled(timing: Timing, other: Timing) -> Timing:
    """Return the samples of two timings of the same thing by the same processes."""
    return Timing.of([(*one, *another) for one, another in zip(timing.by_rank, other.by_rank, strict=True)])


def thinned(timing: Timing) -> Timing:
    """Return the timing with at most `KEPT_SAMPLES` samples of each process, evenly over their order."""
    return Timing.of([_quantiles(samples) for samples in timing.by_rank or (timing.samples,)])


def _quantiles(samples: tuple[Seconds, ...]) -> tuple[Seconds, ...]:
    if len(samples) <= KEPT_SAMPLES:
        return samples
    ordered = sorted(samples)
    last = len(ordered) - 1
    return tuple(ordered[round(number * last / (KEPT_SAMPLES - 1))] for number in range(KEPT_SAMPLES))


def rank_medians(timing: Timing) -> tuple[Seconds, ...]:
    """Return the median of each process, none where they did not give their own."""
    return tuple(statistics.median(samples) for samples in timing.by_rank)
