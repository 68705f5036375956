"""One process for each rank, where the network has it, on a core of its own as long as there are enough."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.closed_loop.network import Network

_PORTS: Final = count(29_600)
"""A new one for each meeting, as the last one's may still be waiting."""
GRACE_SECONDS: Final = 5
TICK_SECONDS: Final = 0.25
SHOWN_LINES: Final = 8
IN_TURNS: Final = ("chrt", "--batch", "0")
"""Threads take turns. Else whichever is woken interrupts the one that woke it: a collective of gloo, which
goes through four of them, takes 0.15 ms or a timer's period of 4 ms, as it happens.
"""
REPOSITORY: Final = Path(__file__).parents[2]


class RankDied(RuntimeError):  # noqa: N818 - reads as what happened
    """A process of some ranks ended with an error; all of them were ended."""


def run_ranks(network: Network, module: str, arguments: Sequence[str], *, log: Path) -> None:
    """Run ``python -m MODULE`` on every rank to its end; what they say goes into a file.

    Raises RankDied with the last lines of it.
    """
    meeting = {**network.environment(), "MASTER_PORT": str(next(_PORTS)), "WORLD_SIZE": str(network.ranks)}
    command = [sys.executable, "-m", module, *arguments]
    with log.open("w") as said, _started(network, command, meeting, said.fileno()) as processes:
        free: set[int] = set()
        while (codes := [process.poll() for process in processes]) and None in codes and not any(codes):
            for process in processes:
                _free_helpers(process.pid, free)
            time.sleep(TICK_SECONDS)
    if any(codes):
        lines = log.read_text().strip().splitlines()[-SHOWN_LINES:]
        raise RankDied("\n".join([f"{module} ended with {codes}", *lines]))


def _free_helpers(process: int, free: set[int]) -> None:
    """Let what helps a rank run on any core: a message waits for a core, not for the rank to stop computing.

    Ranks take turns at waiting, and then their cores are idle. ``free`` are the threads that may already.
    """
    try:
        threads = {int(entry.name) for entry in Path(f"/proc/{process}/task").iterdir()}
    except FileNotFoundError:
        return
    for thread in threads - {process} - free:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, os.sched_getaffinity(0))
            free.add(thread)


@contextmanager
def _started(
    network: Network, command: Sequence[str], meeting: dict[str, str], said: int
) -> Iterator[list["subprocess.Popen[bytes]"]]:
    cores = sorted(os.sched_getaffinity(0))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(network.ranks):
            local = rank % network.ranks_per_node
            place = {
                "RANK": str(rank),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(network.ranks_per_node),
            }
            pinned = ["taskset", "--cpu-list", str(cores[rank % len(cores)])]
            processes.append(
                subprocess.Popen(  # noqa: S603 - our own module
                    [*network.prefix(rank), *IN_TURNS, *pinned, *command],
                    env={**os.environ, **meeting, **place},  # noqa: TID251 - handed on as it is
                    cwd=REPOSITORY,
                    stdout=said,
                    stderr=said,
                )
            )
        yield processes
    finally:
        _end(processes)


def _end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
