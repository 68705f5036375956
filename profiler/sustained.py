"""How fast a device stays: one large product again and again, for a minute, as a training run loads it."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from planner.units import FlopsPerSecond, Seconds
from planner.workload.operators import Phase
from profiler.backend import Backend
from profiler.kernels import kernel_call, kernel_flops
from profiler.processes import Ranks
from profiler.shapes import KernelShape

SIZES = {"cpu": 1024, "cuda": 8192}
"""m, n and k of the product: large enough that nothing but the device bounds it."""
WINDOW_SECONDS: Seconds = 0.5
BURST_WINDOWS = 2
"""Windows from a cool start that show what a burst reaches."""
WARM_SHARE = 0.25
"""The last part of the time, over which the device has settled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sustained:
    """The rate of a device from a cool start, and once it has been busy for ``seconds``."""

    seconds: Seconds
    burst_flops_per_second: FlopsPerSecond
    sustained_flops_per_second: FlopsPerSecond


def load_shape(kind: str, *, dtype: str) -> KernelShape:
    """Return the product that loads a device of a kind."""
    size = SIZES[kind]
    return KernelShape(
        operator="matrix_product",
        dtype=dtype,
        phase=Phase.FORWARD,
        shape={"m": size, "n": size, "k": size},
    )


def sustained_rate(
    wanted: KernelShape,
    backend: Backend,
    ranks: Ranks,
    *,
    seconds: Seconds,
    now: Callable[[], Seconds] = time.monotonic,
) -> list[Sustained]:
    """Return the rates of every process under load for so many seconds, all of them at once."""
    call = kernel_call(wanted, backend)
    flops = kernel_flops(wanted) or 0.0
    # The first call of all loads libraries and chooses the kernel.
    _, once = (backend.stopwatch.seconds(call, times=1) for _ in range(2))
    times = max(1, int(WINDOW_SECONDS / once)) if once > 0 else 1
    rates: list[FlopsPerSecond] = []
    started = now()
    while now() - started < seconds or len(rates) < BURST_WINDOWS:
        rates.append(times * flops / backend.stopwatch.seconds(call, times=times))
    warm = rates[-max(1, int(len(rates) * WARM_SHARE)) :]
    return ranks.exchange(
        Sustained(
            seconds=now() - started,
            burst_flops_per_second=max(rates[:BURST_WINDOWS]),
            sustained_flops_per_second=statistics.median(warm),
        )
    )
