"""Which measured collectives speak for the links of a node group."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from planner.cluster import Level
from planner.cost.collective_curves import Timing
from planner.measurements import CollectiveRow
from planner.profile import Profile
from planner.units import BytesPerSecond
from planner.workload.operators import Collective

LINK_FACT: Final = "link_bandwidth_bytes_per_second"
"""The fact of a published profile that says which link inside a node its collectives ran over."""
RELATIVES_FACT: Final = "relative_sources"
"""The fact that names sources measured on another device with the same chip or links."""
PORT_RATES: Final = {"hdr": 25e9, "ndr": 50e9, "xdr": 100e9}
"""Bytes per second of one InfiniBand port by its generation: rows ran over one port per device."""
SAME_LINK: Final = {"infiniband": "ib"}
"""Words of link names that mean the same."""
OTHER_CLUSTERS: Final = frozenset({"misconfigured", "observed", "sharp"})
"""Words that tell of a network other than the plain one that a level describes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCollectives:
    """The collective rows of one device, from all profiles."""

    profiles: Sequence[Profile]

    def reference_bandwidth(self) -> BytesPerSecond | None:
        """Return the bandwidth of the link that the rows ran over; None where it is the group's own."""
        facts = [profile.facts.get(LINK_FACT) for profile in self.profiles if profile.collectives]
        return next((float(fact) for fact in facts if isinstance(fact, int | float)), None)

    def describe_machine(self) -> bool:
        """Tell whether the rows were measured on the very machine, links and all."""
        return all(LINK_FACT not in profile.facts for profile in self.profiles)

    def inside_node(self, operation: Collective) -> list[Timing]:
        """Return the timings of one operation inside a node, counted by ranks."""
        return [
            _timing(profile, row, count=row.world_size)
            for profile, row in self._rows(operation)
            if row.world_size == row.ranks_per_node > 1
        ]

    def between_nodes(self, operation: Collective, level: Level) -> dict[int, list[Timing]]:
        """Return the timings over a network like ``level``, by ranks per node, counted by nodes."""
        timings: dict[int, list[Timing]] = {}
        for profile, row in self._rows(operation):
            if row.world_size > row.ranks_per_node and ran_over(level, row, profile):
                timing = _timing(profile, row, count=row.world_size // row.ranks_per_node)
                timings.setdefault(row.ranks_per_node, []).append(timing)
        return timings

    def _rows(self, operation: Collective) -> Iterator[tuple[Profile, CollectiveRow]]:
        for profile in self.profiles:
            for row in profile.collectives:
                if row.operation == operation:
                    yield profile, row


def ran_over(level: Level, row: CollectiveRow, profile: Profile) -> bool:
    """Tell whether a row between nodes ran over a network like a level.

    A profile of a machine describes that machine; of published rows the link's name must have all
    words of the level's, and none that tells of another cluster.
    """
    if LINK_FACT not in profile.facts:
        return True
    words = _words(row.inter_link or "")
    odd = OTHER_CLUSTERS - ({"sharp"} if level.in_network_reduction else set())
    return network_bandwidth(level) is not None and _words(level.name) <= words and not words & odd


def network_bandwidth(level: Level) -> BytesPerSecond | None:
    """Return the bandwidth of the network that published rows for a level of this name ran over."""
    return next((rate for word, rate in PORT_RATES.items() if word in _words(level.name)), None)


def _words(name: str) -> set[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return {SAME_LINK.get(word, word) for word in words}


def _timing(profile: Profile, row: CollectiveRow, *, count: int) -> Timing:
    relatives = profile.facts.get(RELATIVES_FACT, ())
    return Timing(
        payload_bytes=row.payload_bytes,
        count=count,
        seconds=row.seconds,
        stack=f"{profile.name} {row.source.source} {row.algorithm} {row.dtype}",
        is_own=row.source.source not in relatives,
    )
