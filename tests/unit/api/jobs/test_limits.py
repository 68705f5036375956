"""A request cannot take all time, or all memory."""

import signal
import subprocess
import sys
import time

import pytest

from api.jobs.limits import time_limited

SECONDS = 30


def test_what_takes_too_long_is_given_up() -> None:
    with pytest.raises(TimeoutError), time_limited(0.05):
        time.sleep(SECONDS)


def test_what_is_done_in_time_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with time_limited(0.05):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    time.sleep(0.1)


def test_without_a_limit_nothing_is_given_up() -> None:
    with time_limited(None):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_more_memory_than_the_limit_is_refused() -> None:
    code = "from api.jobs.limits import limit_memory; limit_memory(2**28); bytearray(2**29)"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert "MemoryError" in ended.stderr
