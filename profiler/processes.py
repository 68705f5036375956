"""The processes that measure together: started here or by torchrun, and how they keep in step."""

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from torch import distributed
from torch.multiprocessing.spawn import start_processes

Value = TypeVar("Value")

TIMEOUT = timedelta(minutes=10)
"""How long a process waits for one that has gone silent; a slow shape on a busy machine takes less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Which of how many processes this one is, on all nodes and on its own."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    processes_per_node: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a process could not go on with what all of them are measuring."""

    reason: str
    detail: str


class PeerFailed(RuntimeError):  # noqa: N818 - reads as what happened
    """Another process could not go on; all of them leave what they were measuring."""

    def __init__(self, failure: Failure) -> None:
        """Keep what the other process said."""
        super().__init__(failure.detail)
        self.failure = failure


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupShape:
    """Which ranks form groups: ``size`` of them, every ``stride``-th one, so many ``groups`` at once."""

    size: int
    stride: int = 1
    groups: int = 1

    def num_available(self, world_size: int) -> int:
        """Return how many such groups there are room for without sharing a rank."""
        return world_size // (self.size * self.stride) * self.stride

    def members(self, group: int) -> tuple[int, ...]:
        """Return the ranks of one of the groups: neighbours interlock, so that each node has some of all."""
        block, offset = divmod(group, self.stride)
        first = block * self.size * self.stride + offset
        return tuple(first + self.stride * number for number in range(self.size))


class Ranks(Protocol):
    """The processes that measure one thing at the same time, and the group that this one belongs to."""

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks of this process's group, in their order."""
        ...

    @property
    def has_this_process(self) -> bool:
        """Whether this process takes part at all."""
        ...

    @property
    def collective_group(self) -> distributed.ProcessGroup | None:
        """The group over which a collective between them is measured; None alone."""
        ...

    def exchange(self, value: Value) -> list[Value]:
        """Return the value of each process by rank; raise `PeerFailed` where one told a failure instead."""
        ...

    def tell(self, failure: Failure) -> None:
        """Say, in place of the value that the others wait for, that this process cannot go on."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Alone:
    """The only process."""

    members: tuple[int, ...] = (0,)
    has_this_process: bool = True
    collective_group: distributed.ProcessGroup | None = None

    def exchange(self, value: Value) -> list[Value]:
        """Return the value."""
        return [value]

    def tell(self, failure: Failure) -> None:
        """Do nothing: nobody waits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """Some of several processes, joined by torch, in one group or more."""

    size: int
    """How many they are in all groups."""
    members: tuple[int, ...]
    has_this_process: bool
    collective_group: distributed.ProcessGroup | None
    control_group: distributed.ProcessGroup | None
    """Of all groups. Gloo whatever the device, so that keeping in step leaves the device alone."""

    def exchange(self, value: Value) -> list[Value]:
        """See `Ranks.exchange`."""
        values = self._gather(value)
        failures = [given for given in values if isinstance(given, Failure)]
        if failures:
            raise PeerFailed(failures[0])
        return [given for given in values if not isinstance(given, Failure)]

    def tell(self, failure: Failure) -> None:
        """See `Ranks.tell`."""
        self._gather(failure)

    def _gather(self, value: Value | Failure) -> list[Value | Failure]:
        values: list[Value | Failure] = [value] * self.size
        distributed.all_gather_object(values, value, group=self.control_group)
        return values


def place_from_torchrun(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return the place that torchrun gave this process; None where it was started by hand."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environment.keys():
        return None
    world_size = int(environment["WORLD_SIZE"])
    return Place(
        rank=int(environment["RANK"]),
        world_size=world_size,
        local_rank=int(environment.get("LOCAL_RANK", environment["RANK"])),
        processes_per_node=int(environment.get("LOCAL_WORLD_SIZE", world_size)),
    )


def spawn(work: Callable[[Place, str], None], *, processes: int) -> None:
    """Run ``work`` in so many processes on this machine, each with its place and where they meet.

    Raises torch's `ProcessRaisedException` or `ProcessExitedException` when one of them dies. None
    outlives this call, nor (torch sees to that) this process.
    """
    with tempfile.TemporaryDirectory(prefix="meshplan-profiler-") as folder:
        meeting = f"file://{Path(folder) / 'store'}"
        started = start_processes(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            _work_at, args=(work, processes, meeting), nprocs=processes, join=False
        )
        try:
            while not started.join():
                pass
        finally:
            for process in started.processes:
                process.terminate()
                process.join()


def _work_at(rank: int, work: Callable[[Place, str], None], processes: int, meeting: str) -> None:
    work(Place(rank=rank, world_size=processes, local_rank=rank, processes_per_node=processes), meeting)


def join(
    place: Place, *, meeting: str, library: str, shapes: Collection[GroupShape]
) -> dict[GroupShape, Ranks]:
    """Meet the other processes; return the groups of every shape wanted that there is room for.

    ``meeting`` is torch's ``init_method``. The group of all processes is always among them. A
    process outside a group gets it as well and must not use it.
    """
    if place.world_size == 1:
        return {GroupShape(size=1): Alone()}
    distributed.init_process_group(
        library, init_method=meeting, rank=place.rank, world_size=place.world_size, timeout=TIMEOUT
    )
    everyone = GroupShape(size=place.world_size)
    room = {shape for shape in shapes if shape.num_available(place.world_size) >= shape.groups}
    in_order = sorted(room | {everyone}, key=lambda shape: (shape.size, shape.stride, shape.groups))
    # Every process makes every group, in the same order, as torch asks for.
    return {shape: _groups(shape, rank=place.rank, library=library) for shape in in_order}


def _groups(shape: GroupShape, *, rank: int, library: str) -> Together:
    members = [shape.members(number) for number in range(shape.groups)]
    groups = [distributed.new_group(list(ranks), backend=library, timeout=TIMEOUT) for ranks in members]
    everyone = sorted(rank for ranks in members for rank in ranks)
    control_group = distributed.new_group(everyone, backend="gloo", timeout=TIMEOUT)
    own = next((number for number, ranks in enumerate(members) if rank in ranks), 0)
    return Together(
        size=len(everyone),
        members=members[own],
        has_this_process=rank in everyone,
        collective_group=groups[own],
        control_group=control_group,
    )


def part() -> None:
    """Leave the other processes, once all have come this far."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
