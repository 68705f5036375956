"""A collective and a kernel at once: what each costs the other."""

from dataclasses import replace

from planner.units import Seconds
from profiler.outcomes import Overlapped
from profiler.timing import AtOnce, Call, Exchange, Rules, Start, Stopwatch, Timing, measure

ROUNDS_PER_EXCHANGE = 4
MOST_KERNELS = 10_000
"""Calls that a collective is measured beside, at the most."""


def measure_overlap(
    start: Start,
    call: Call,
    *,
    stopwatch: Stopwatch,
    rules: Rules,
    exchange: Exchange,
    slowest: Exchange,
) -> Overlapped:
    """Return the times of a collective and of as many calls as last as long, alone and together.

    ``exchange`` has the figures of all ranks, ``slowest`` those of the slowest one: a collective
    ends when its last rank has it.
    """
    share = replace(rules, seconds_limit=rules.seconds_limit / 3)
    alone = measure(lambda: start().wait(), stopwatch=stopwatch, rules=share, exchange=slowest)
    once = measure(call, stopwatch=stopwatch, rules=share, exchange=exchange)
    ratio = alone.median_seconds / once.median_seconds
    # The first rank's count holds for all: a rank that calls more often would be waited for.
    kernels = round(exchange([float(max(1, min(MOST_KERNELS, round(ratio))))])[0][0])
    kernels_alone = _many(once, kernels)
    collective, calls = _together(
        start, call, kernels, stopwatch=stopwatch, rules=share, exchange=exchange, slowest=slowest
    )
    return Overlapped(
        kernels=kernels,
        collective_alone=alone,
        kernels_alone=kernels_alone,
        collective_together=collective,
        kernels_together=calls,
    )


def _together(
    start: Start,
    call: Call,
    kernels: int,
    *,
    stopwatch: Stopwatch,
    rules: Rules,
    exchange: Exchange,
    slowest: Exchange,
) -> tuple[Timing, Timing]:
    """Run both at once until both are known well enough, or time is up."""
    collective: list[list[Seconds]] = []
    calls: list[list[Seconds]] = []
    spent: Seconds = 0.0
    while True:
        rounds: list[AtOnce] = [
            stopwatch.together(start, call, times=kernels) for _ in range(ROUNDS_PER_EXCHANGE)
        ]
        collective = _longer(collective, slowest([one.collective_seconds for one in rounds]))
        calls = _longer(calls, exchange([one.calls_seconds for one in rounds]))
        spent += sum(collective[0][-ROUNDS_PER_EXCHANGE:])
        both = (Timing.of(collective), Timing.of(calls))
        if spent >= rules.seconds_limit or all(
            timing.relative_half_width <= rules.relative_confidence for timing in both
        ):
            return both


def _longer(by_rank: list[list[Seconds]], given: list[list[Seconds]]) -> list[list[Seconds]]:
    if not by_rank:
        return given
    return [[*before, *now] for before, now in zip(by_rank, given, strict=True)]


def _many(timing: Timing, times: int) -> Timing:
    return Timing.of([[times * sample for sample in samples] for samples in timing.by_rank])
