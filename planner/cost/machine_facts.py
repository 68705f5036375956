"""What a profiled machine says of kernels and links at work: beside each other, under load, one by one.

The profiler writes these as facts of its profile; published profiles have none of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any, Final

import numpy as np

from planner.cluster import Device
from planner.cost.tally import CONTENTION_FRACTION, NOTHING, Tally
from planner.measurements import CollectiveRow
from planner.profile import Profile
from planner.units import Seconds

OVERLAPS: Final = "overlaps"
GROUPS_AT_ONCE: Final = "groups_at_once"
SUSTAINED: Final = "sustained"
LAUNCH: Final = "launch"
"""The operator whose rows time the smallest kernel there is, again and again."""


class Place(StrEnum):
    """Where the ranks of a group sit."""

    INSIDE = "inside"
    BETWEEN = "between"

    @classmethod
    def of(cls, *, world_size: int, ranks_per_node: int) -> "Place":
        """Return whether such groups stay inside a node."""
        return cls.INSIDE if world_size <= ranks_per_node else cls.BETWEEN


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFacts:
    """Every default is what holds where nobody measured it."""

    contention_fraction: float = CONTENTION_FRACTION
    """Slowdown of work per second of communication beside it, from 0 to 1 (nothing is gained by overlap)."""
    crowding: Mapping[Place, float] = field(default_factory=dict)
    """Time of a collective while all groups of its kind talk, over its time alone; 1 at the least."""
    load_slowdown: float = 1.0
    """Time of a product on a device busy for a minute, over its measured time; 1 at the least."""
    launch_seconds: Seconds = 0.0
    """Host time that launching a kernel takes at the least, whatever the program."""
    measured: frozenset[str] = frozenset()
    """Which of them were measured, by name of the field."""

    def lost_beside(self, communication: Tally, work: Tally) -> Tally:
        """Return what work was measured to lose of communication beside it; nothing where nobody did."""
        if "contention_fraction" not in self.measured or not communication.seconds:
            return NOTHING
        covered = min(work.seconds / communication.seconds, 1.0)
        return communication.times(self.contention_fraction * covered)

    @classmethod
    def of(cls, device: Device, profiles: Iterable[Profile]) -> "MachineFacts":
        """Return what the profiles of a device say; of several machines of its kind the median."""
        own = [profile for profile in profiles if profile.device == device.name]
        contention = [share for profile in own for share in _contention(profile)]
        slowdowns = [slowdown for profile in own for slowdown in _load_slowdown(profile)]
        launches = [seconds for profile in own for seconds in _launches(profile)]
        crowding = _crowding(own)
        found = {
            "contention_fraction": contention,
            "crowding": crowding,
            "load_slowdown": slowdowns,
            "launch_seconds": launches,
        }
        return cls(
            contention_fraction=median(contention) if contention else CONTENTION_FRACTION,
            crowding=crowding,
            load_slowdown=median(slowdowns) if slowdowns else 1.0,
            launch_seconds=median(launches) if launches else 0.0,
            measured=frozenset(name for name, values in found.items() if values),
        )


AS_PUBLISHED: Final = MachineFacts()


def _contention(profile: Profile) -> Iterator[float]:
    """Yield what work loses to a collective beside it, of each overlap measured.

    Both together take what the longer one takes alone, and that share of the shorter one.
    """
    for row in _rows(profile, OVERLAPS):
        times = _numbers(
            row,
            "collective_seconds_alone",
            "kernels_seconds_alone",
            "collective_seconds_together",
            "kernels_seconds_together",
        )
        if times is not None:
            shorter, longer = sorted(times[:2])
            yield min(max((max(times[2:]) - longer) / shorter, 0.0), 1.0)


def _crowding(profiles: Sequence[Profile]) -> dict[Place, float]:
    ratios: dict[Place, list[float]] = {}
    for profile in profiles:
        for row in _rows(profile, GROUPS_AT_ONCE):
            sizes = _numbers(row, "world_size", "ranks_per_node", "payload_bytes", "seconds")
            if sizes is None:
                continue
            world_size, per_node = int(sizes[0]), int(sizes[1])
            like = [
                one
                for one in profile.collectives
                if (one.operation, one.world_size, one.ranks_per_node)
                == (row.get("operation"), world_size, per_node)
            ]
            if like:
                place = Place.of(world_size=world_size, ranks_per_node=per_node)
                ratios.setdefault(place, []).append(sizes[3] / _alone_seconds(like, sizes[2]))
    return {place: max(median(found), 1.0) for place, found in ratios.items()}


def _alone_seconds(rows: Sequence[CollectiveRow], payload_bytes: float) -> Seconds:
    """Return the time of a payload between measured ones, by its logarithm."""
    known = {row.payload_bytes: row.seconds for row in rows}
    sizes = sorted(known)
    logs = np.log([known[size] for size in sizes])
    return float(np.exp(np.interp(np.log(payload_bytes), np.log(sizes), logs)))


def _load_slowdown(profile: Profile) -> Iterator[float]:
    """Yield the middle process's burst over its rate in the end: what clocks do, not what one process met."""
    sustained = profile.facts.get(SUSTAINED)
    ranks = sustained.get("ranks") if isinstance(sustained, Mapping) else None
    rates = [
        found
        for rank in (ranks if isinstance(ranks, Sequence) else ())
        if isinstance(rank, Mapping)
        and (found := _numbers(rank, "burst_flops_per_second", "sustained_flops_per_second")) is not None
    ]
    if rates:
        yield max(median(burst / held for burst, held in rates), 1.0)


def _launches(profile: Profile) -> Iterator[Seconds]:
    for table in profile.tables(LAUNCH):
        yield from table.seconds.tolist()


def _rows(profile: Profile, fact: str) -> Iterator[Mapping[str, Any]]:
    rows = profile.facts.get(fact, ())
    if isinstance(rows, Sequence):
        yield from (row for row in rows if isinstance(row, Mapping))


def _numbers(row: Mapping[str, Any], *names: str) -> list[float] | None:
    """Return positive numbers of a row by name; None where one is missing or is none."""
    values = [row.get(name) for name in names]
    numbers = [float(value) for value in values if isinstance(value, int | float) and value > 0]
    return numbers if len(numbers) == len(values) else None
