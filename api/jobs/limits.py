"""What one request may take of a worker: time, and memory."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from planner.units import GIBIBYTE, Bytes, Seconds

WORKER_BYTES: Final[Bytes] = 8 * GIBIBYTE
"""Of one worker; the largest searches known take a tenth of it."""
GRACE_SECONDS: Final[Seconds] = 30.0
"""Beyond the time limit of a search: to read profiles, to predict, to explain."""


@contextmanager
def time_limited(seconds: Seconds | None) -> Iterator[None]:
    """Raise TimeoutError inside once the seconds are over; in the main thread of a process alone.

    None is no limit.
    """
    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_memory(most_bytes: Bytes = WORKER_BYTES) -> None:
    """Let this process fail with MemoryError rather than take the memory of everything beside it."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = int(most_bytes) if hard == resource.RLIM_INFINITY else min(int(most_bytes), hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _give_up(_number: int, _frame: object) -> None:
    raise TimeoutError("the time for one request is over")
