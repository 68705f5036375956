"""Which measured collectives speak for the links of a node group."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from planner.cluster import Device, Level, Topology
from planner.cost.collective_curves import Timing
from planner.cost.collective_model import PCIE
from planner.cost.product_rows import HOST_BOUND
from planner.devices import device_by_name, device_names
from planner.measurements import CollectiveRow
from planner.profile import Profile
from planner.relatives import Closeness, closeness, nearest_first
from planner.units import Bytes, BytesPerSecond
from planner.workload.operators import Collective

LINK_FACT: Final = "link_bandwidth_bytes_per_second"
"""The fact of a published profile that says which link inside a node its collectives ran over."""
COPYING_FACT: Final = "copying_sources"
"""The fact that names sources whose gathers copy their parts besides: these do not count."""
COPIED: Final = frozenset({Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL})
SWITCH: Final = "nvswitch"
PAIR: Final = "pair"
STRUCTURES: Final = frozenset({SWITCH, PAIR})
"""Words of a level's name that say how its devices are joined: rows must say the same."""
STAGED_FACT: Final = "staged_above_ranks"
"""The fact that says beyond how many ranks a machine sent everything through its host's memory."""
STAGED: Final = "staged"
"""The word in a level's name that says that copies go through the host's memory."""
PORT_RATES: Final[Mapping[str, float]] = {
    "infiniband-edr": 12.5e9,
    "infiniband-hdr": 25e9,
    "infiniband-ndr": 50e9,
    "infiniband-xdr": 100e9,
    "efa-v1": 6.25e9,
    "efa-v2": 50e9,
    "efa-v3": 50e9,
    "efa-v4": 50e9,
    "ainic-roce": 50e9,
}
"""Bytes per second and device of the networks that published rows ran over, by what they are called here."""
SAME_LINK: Final = {"infiniband": "ib", "nvl72": "nvswitch"}
"""Words of link names that mean the same."""
OTHER_CLUSTERS: Final = frozenset({"misconfigured", "observed", "sharp"})
"""Words that tell of a network other than the plain one that a level describes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCollectives:
    """The collective rows of one device, from all profiles."""

    profiles: Sequence[Profile]
    is_own: bool = True
    """False where a relative was measured."""

    def reference_bandwidth(self) -> BytesPerSecond | None:
        """Return the bandwidth of the link that the rows ran over; None where it is the group's own."""
        facts = [profile.facts.get(LINK_FACT) for profile in self.profiles if profile.collectives]
        return next((float(fact) for fact in facts if isinstance(fact, int | float)), None)

    def describe_machine(self) -> bool:
        """Tell whether the rows were measured on the very machine, links and all."""
        return all(LINK_FACT not in profile.facts for profile in self.profiles)

    def inside(self, operation: Collective, levels: Sequence[Level]) -> list[Timing]:
        """Return the timings of one operation inside a box of nested levels, counted by ranks.

        The outermost level spans the box. Rows of one node count, and rows across nodes that this
        level's own link joins.
        """
        level = levels[-1]
        return [
            self._timing(profile, row, count=row.world_size)
            for profile, row in self._rows(operation)
            if row.world_size > 1
            and (self._ran_inside(levels, row) or _ran_through(level, row))
            and not _differs_in_staging(row, profile, level)
        ]

    def inside_node(self, operation: Collective) -> list[Timing]:
        """Return the timings of one operation between devices of one node, counted by ranks."""
        return [
            self._timing(profile, row, count=row.world_size)
            for profile, row in self._rows(operation)
            if row.world_size > 1 and _is_inside_node(row)
        ]

    def between_nodes(
        self, operation: Collective, level: Level, *, ranks_per_box: int
    ) -> dict[int, list[Timing]]:
        """Return the timings over a network like ``level``, by ranks per box, counted by boxes.

        Ranks that share a node share a box, and so do those of all nodes in a box of ``ranks_per_box``.
        """
        timings: dict[int, list[Timing]] = {}
        for profile, row in self._rows(operation):
            if not _is_inside_node(row) and ran_over(level, row, profile):
                together = _ranks_together(row, ranks_per_box=ranks_per_box)
                timing = self._timing(profile, row, count=row.world_size // together)
                timings.setdefault(together, []).append(timing)
        return timings

    def _ran_inside(self, levels: Sequence[Level], row: CollectiveRow) -> bool:
        """Tell whether a row ran inside a node over links like those of nested levels.

        A relative's links must have all words of the outermost level's name, and be joined alike;
        the device's own only the words that say how devices are joined.
        """
        if self.describe_machine() or not _is_inside_node(row):
            return _is_inside_node(row)
        needed, found = _words(levels[-1].name) - {STAGED}, _words(row.intra_link or "")
        if self.is_own:
            return needed & STRUCTURES <= found
        is_paired = PAIR in {word for level in levels for word in _words(level.name)}
        ran_switched = PAIR in found or SWITCH in found or any(word.startswith(PCIE) for word in found)
        joined_alike = (levels[-1].topology is Topology.SWITCH) is ran_switched
        return needed <= found and joined_alike and (is_paired or PAIR not in found)

    def _timing(self, profile: Profile, row: CollectiveRow, *, count: int) -> Timing:
        return Timing(
            payload_bytes=row.payload_bytes,
            count=count,
            seconds=row.seconds,
            stack=f"{profile.name} {row.source.source} {row.algorithm} {row.dtype}",
            is_own=self.is_own,
        )

    def _rows(self, operation: Collective) -> Iterator[tuple[Profile, CollectiveRow]]:
        for profile in self.profiles:
            copying = profile.facts.get(COPYING_FACT, ()) if operation in COPIED else ()
            rows = [
                row
                for row in profile.collectives
                if row.operation == operation and row.source.source not in copying
            ]
            host_bound = _host_bound_payloads(profile, rows)
            for row in rows:
                if row.payload_bytes > host_bound.get((row.source.source, row.world_size), 0.0):
                    yield profile, row


def _host_bound_payloads(
    profile: Profile, rows: Sequence[CollectiveRow]
) -> dict[tuple[str | None, int], Bytes]:
    """Return the payloads up to which a source shows the host's launch, by source and number of ranks."""
    bounds = profile.facts.get(HOST_BOUND, {})
    payloads: dict[tuple[str | None, int], Bytes] = {}
    for row in rows:
        if row.seconds < bounds.get(row.source.source, 0.0):
            key = (row.source.source, row.world_size)
            payloads[key] = max(row.payload_bytes, payloads.get(key, 0.0))
    return payloads


def measured_collectives(device: Device, profiles: Sequence[Profile]) -> list[MeasuredCollectives]:
    """Return the rows of a device, then those of its relatives of the same architecture, nearest first.

    A machine that was measured with its own links needs no relative.
    """
    own = MeasuredCollectives(profiles=[profile for profile in profiles if profile.device == device.name])
    if own.profiles and own.describe_machine():
        return [own]
    names = {profile.device for profile in profiles if profile.collectives} & set(device_names())
    others = nearest_first(device, map(device_by_name, sorted(names - {device.name})))
    return [own, *(_lent_by(other, profiles) for other in others if _is_near(device, other))]


def _lent_by(relative: Device, profiles: Sequence[Profile]) -> MeasuredCollectives:
    theirs = [profile for profile in profiles if profile.device == relative.name]
    return MeasuredCollectives(profiles=theirs, is_own=False)


def _is_near(device: Device, other: Device) -> bool:
    near = closeness(device, other)
    return near is not None and near <= Closeness.SAME_ARCHITECTURE


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
    words = _words(level.name)
    return next((rate for name, rate in PORT_RATES.items() if _words(name) <= words), None)


def is_staged(level: Level) -> bool:
    """Tell whether copies over a level go through the host's memory, as its name says."""
    return STAGED in _words(level.name)


@lru_cache(maxsize=1024)
def _words(name: str) -> frozenset[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return frozenset(SAME_LINK.get(word, word) for word in words)


def _is_inside_node(row: CollectiveRow) -> bool:
    return row.world_size == row.ranks_per_node


def _ran_through(level: Level, row: CollectiveRow) -> bool:
    """Tell whether a row across nodes ran over a level's own link: the NVLink of a whole rack."""
    return row.inter_link is not None and _words(level.name) <= _words(row.inter_link)


def _differs_in_staging(row: CollectiveRow, profile: Profile, level: Level) -> bool:
    """Tell whether a row and a level differ in that one of them goes through the host's memory."""
    most = profile.facts.get(STAGED_FACT)
    return most is not None and (row.world_size > most) is not is_staged(level)


def _ranks_together(row: CollectiveRow, *, ranks_per_box: int) -> int:
    """Return how many ranks of a row share a box: those of a node, or of all nodes in the box."""
    if row.ranks_per_node == 1 or row.world_size % ranks_per_box:
        return row.ranks_per_node
    return max(row.ranks_per_node, ranks_per_box)
