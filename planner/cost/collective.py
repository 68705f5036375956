"""The time of a collective: measured curves inside a node, level by level beyond."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from planner.cluster import Level, NodeGroup
from planner.cost.collective_curves import NodeCurves, node_curves
from planner.cost.group_shape import GroupShape, group_shape
from planner.profile import Estimate, Profile, Provenance
from planner.units import Bytes, Seconds
from planner.workload.operators import Collective

__all__ = ["CollectiveCosts", "GroupShape", "group_shape"]

LINK_EFFICIENCY: Final = 0.80
"""Share of a link's rate that an unmeasured collective reaches inside a node (0.72 to 0.9 on NVLink)."""
NETWORK_EFFICIENCY: Final = 0.92
"""Share of the network's rate that large all-reduces reach: 356 to 387 of 400 GB/s per node over 12
nodes of 8 x 400 Gb/s InfiniBand, 365 to 370 of 400 GB/s over 4 to 16 nodes of 3.2 Tb/s."""
SCALED_ERROR: Final = 0.12
NETWORK_ERROR: Final = 0.15
UNMEASURED_ERROR: Final = 0.25
"""Relative errors, one standard deviation."""


class CollectiveCosts:
    """What collectives take between the devices of one node group."""

    def __init__(self, group: NodeGroup, profiles: Sequence[Profile]) -> None:
        """Take the collective rows of the group's device among the profiles."""
        self._group = group
        own = [profile for profile in profiles if profile.device == group.device.name]
        self._curves: NodeCurves = node_curves([row for profile in own for row in profile.collectives])
        self._cache: dict[tuple[Collective, Bytes, GroupShape], Estimate] = {}

    def seconds(self, operation: Collective, *, payload_bytes: Bytes, shape: GroupShape) -> Estimate:
        """Return the time of one collective, its payload counted as nccl-tests count it."""
        key = (operation, payload_bytes, shape)
        if key not in self._cache:
            self._cache[key] = self._seconds(operation, payload_bytes, shape)
        return self._cache[key]

    def send_receive(self, *, payload_bytes: Bytes, stride: int) -> Estimate:
        """Return the time of a message to the device ``stride`` further on."""
        shape = group_shape(self._group, size=2, stride=stride)
        return self.seconds(Collective.SEND_RECEIVE, payload_bytes=payload_bytes, shape=shape)

    def lower_bound_seconds(
        self, operation: Collective, *, payload_bytes: Bytes, shape: GroupShape
    ) -> Seconds:
        """Return a time that ``seconds`` never falls below: for one shape it is the same figure."""
        return self.seconds(operation, payload_bytes=payload_bytes, shape=shape).seconds

    def _seconds(self, operation: Collective, payload_bytes: Bytes, shape: GroupShape) -> Estimate:
        if shape.size == 1 or payload_bytes <= 0:
            return Estimate(seconds=0.0, provenance=Provenance.MEASURED, relative_error=0.0)
        parts = [self._innermost(operation, payload_bytes, shape)]
        for number, level in enumerate(self._group.levels[1:], start=1):
            if shape.ranks_per_level[number] > shape.ranks_per_level[number - 1]:
                parts.append(_across(operation, payload_bytes, shape, level=level, number=number))
        # The rings of all levels run as one pipeline: the slowest level sets the pace.
        slowest = max(parts, key=lambda part: part.seconds)
        latency = sum(self._latency(number, shape) for number in range(1, len(self._group.levels)))
        return Estimate(
            seconds=slowest.seconds + latency,
            provenance=slowest.provenance,
            relative_error=slowest.relative_error,
        )

    def _innermost(self, operation: Collective, payload_bytes: Bytes, shape: GroupShape) -> Estimate:
        ranks = shape.ranks_per_level[0]
        level = self._group.levels[0]
        if ranks == 1:
            return Estimate(seconds=0.0, provenance=Provenance.MEASURED, relative_error=0.0)
        curve = self._curves.get(operation)
        if curve is not None:
            return curve.estimate(payload_bytes, ranks)
        volume = bytes_per_rank(operation, payload_bytes, ranks)
        rate = LINK_EFFICIENCY * level.bandwidth_bytes_per_second / level.oversubscription
        seconds = steps(operation, ranks) * level.latency_seconds + volume / rate
        return Estimate(seconds=seconds, provenance=Provenance.DATASHEET, relative_error=UNMEASURED_ERROR)

    def _latency(self, number: int, shape: GroupShape) -> Seconds:
        """Latency of a tree over the domains that a level joins: twice its depth."""
        domains = shape.ranks_per_level[number] / shape.ranks_per_level[number - 1]
        level = self._group.levels[number]
        return 2.0 * float(np.ceil(np.log2(domains))) * level.latency_seconds


def _across(
    operation: Collective, payload_bytes: Bytes, shape: GroupShape, *, level: Level, number: int
) -> Estimate:
    """Return the time that one level needs for its share: every rank below carries an equal part."""
    below = shape.ranks_per_level[number - 1]
    ranks = shape.ranks_per_level[number]
    volume = bytes_per_rank(operation, payload_bytes, ranks)
    if operation is Collective.ALL_TO_ALL:
        # Only what leaves the domain crosses the level, and each rank sends its own.
        volume, below = payload_bytes * (ranks - below) / ranks, 1
    if operation is Collective.SEND_RECEIVE:
        below = 1
    if level.in_network_reduction and operation is Collective.ALL_REDUCE:
        volume = payload_bytes
    rate = NETWORK_EFFICIENCY * level.bandwidth_bytes_per_second / level.oversubscription
    return Estimate(
        seconds=volume / (below * rate), provenance=Provenance.DATASHEET, relative_error=NETWORK_ERROR
    )


def bytes_per_rank(operation: Collective, payload_bytes: Bytes, ranks: int) -> Bytes:
    """Return the bytes that each rank sends in a ring; a bus bandwidth is these over the time."""
    share = (ranks - 1) / ranks
    if operation is Collective.ALL_REDUCE:
        return 2.0 * share * payload_bytes
    if operation in {Collective.SEND_RECEIVE, Collective.BROADCAST}:
        return payload_bytes
    return share * payload_bytes


def steps(operation: Collective, ranks: int) -> int:
    """Return how many hops follow each other in a ring."""
    if operation is Collective.ALL_REDUCE:
        return 2 * (ranks - 1)
    return 1 if operation is Collective.SEND_RECEIVE else ranks - 1
