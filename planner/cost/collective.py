"""The time of a collective: measured curves inside a node, level by level beyond."""

from collections.abc import Sequence
from typing import Final

from planner.cluster import Level, NodeGroup
from planner.cost.collective_curves import Curve, Model, curve_through
from planner.cost.collective_model import LinkModel, bytes_per_rank
from planner.cost.collective_rows import MeasuredCollectives, network_bandwidth
from planner.cost.group_shape import GroupShape, group_shape
from planner.profile import Estimate, Profile, Provenance
from planner.units import Bytes, BytesPerSecond, Seconds
from planner.workload.operators import Collective

__all__ = ["CollectiveCosts", "GroupShape", "group_shape"]

OVERLAP_POWER: Final = 4.0
"""Levels work as one pipeline: the whole takes the fourth-power mean of their times, which is the
slowest one where they differ and somewhat more where they are equal."""
DERIVED_FROM: Final = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE)
"""Measured operations that stand in for one that was not, at equal bytes per rank."""
DERIVED_ERROR: Final = 0.15
NETWORK_ERROR: Final = 0.15
UNMEASURED_ERROR: Final = 0.25
"""Relative errors, one standard deviation."""
NOTHING: Final = Estimate(seconds=0.0, provenance=Provenance.MEASURED, relative_error=0.0)


class CollectiveCosts:
    """What collectives take between the devices of one node group."""

    def __init__(self, group: NodeGroup, profiles: Sequence[Profile]) -> None:
        """Take the collective rows of the group's device among the profiles."""
        self._group = group
        own = [profile for profile in profiles if profile.device == group.device.name]
        rows = MeasuredCollectives(profiles=own)
        self._links = [_link(group, level) for level in group.levels]
        self._node_curves = self._curves_inside(rows)
        self._network_curves = self._curves_between(rows)
        self._answers: dict[tuple[Collective, Bytes, GroupShape], Estimate] = {}

    def seconds(self, operation: Collective, *, payload_bytes: Bytes, shape: GroupShape) -> Estimate:
        """Return the time of one collective, its payload counted as nccl-tests count it."""
        key = (operation, payload_bytes, shape)
        known = self._answers.get(key)
        if known is None:
            known = self._answers[key] = self._seconds(operation, payload_bytes, shape)
        return known

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
            return NOTHING
        nodes = -(-shape.size // shape.ranks_per_node)
        measured = self._network_curves.get((operation, shape.ranks_per_node))
        if measured is not None and nodes > 1:
            return measured.estimate(payload_bytes, nodes)
        return self._by_levels(self._links, operation, payload_bytes, shape.ranks_per_level)

    def _by_levels(
        self,
        links: Sequence[LinkModel],
        operation: Collective,
        payload_bytes: Bytes,
        ranks_per_level: Sequence[int],
    ) -> Estimate:
        """Return the levels' times put together: they work as one pipeline, their hops add up."""
        parts = [self._innermost(operation, payload_bytes, ranks_per_level[0])]
        latency = 0.0
        for link, below, ranks in zip(links[1:], ranks_per_level, ranks_per_level[1:], strict=False):
            if ranks > below:
                parts.append(_across(link, operation, payload_bytes, below=below, ranks=ranks))
                latency += link.latency_seconds(operation, domains=-(-ranks // below))
        slowest = max(parts, key=lambda part: part.seconds)
        # In parts of the slowest, since a fourth power of seconds would underflow.
        shares = sum((part.seconds / slowest.seconds) ** OVERLAP_POWER for part in parts)
        return Estimate(
            seconds=slowest.seconds * shares ** (1.0 / OVERLAP_POWER) + latency,
            provenance=max((part.provenance for part in parts), key=list(Provenance).index),
            relative_error=slowest.relative_error,
        )

    def _innermost(self, operation: Collective, payload_bytes: Bytes, ranks: int) -> Estimate:
        if ranks == 1:
            return NOTHING
        if operation in self._node_curves:
            return self._node_curves[operation].estimate(payload_bytes, ranks)
        for other in DERIVED_FROM:
            if other in self._node_curves:
                return self._derived(other, operation, payload_bytes, ranks)
        seconds = self._links[0].seconds(operation, payload_bytes, ranks=ranks)
        return Estimate(seconds=seconds, provenance=Provenance.DATASHEET, relative_error=UNMEASURED_ERROR)

    def _derived(
        self, measured: Collective, operation: Collective, payload_bytes: Bytes, ranks: int
    ) -> Estimate:
        """Return the time of the measured operation at equal bytes per rank."""
        volume = bytes_per_rank(operation, payload_bytes, ranks)
        equal_payload = volume / bytes_per_rank(measured, 1.0, ranks)
        estimate = self._node_curves[measured].estimate(equal_payload, ranks)
        return Estimate(
            seconds=estimate.seconds,
            provenance=Provenance.INTERPOLATED,
            relative_error=max(DERIVED_ERROR, estimate.relative_error),
        )

    def _curves_inside(self, rows: MeasuredCollectives) -> dict[Collective, Curve]:
        """Return curves over ranks for each operation that was measured inside a node."""
        if not self._links:
            return {}
        link = self._links[0]
        reference = _reference(self._group, self._group.levels[0], rows.reference_bandwidth())
        timings = {operation: rows.inside_node(operation) for operation in Collective}
        return {
            operation: curve_through(
                of_operation,
                _node_model(link, operation),
                reference=None if reference == link else _node_model(reference, operation),
            )
            for operation, of_operation in timings.items()
            if of_operation
        }

    def _curves_between(self, rows: MeasuredCollectives) -> dict[tuple[Collective, int], Curve]:
        """Return curves over nodes, for each operation and number of ranks per node that was measured."""
        if len(self._links) != 2:  # noqa: PLR2004 - a node and a network, as the rows have it
            return {}
        network = self._group.levels[1]
        bandwidth = None if rows.describe_machine() else network_bandwidth(network)
        links = (self._links[0], _reference(self._group, network, bandwidth))
        return {
            (operation, ranks): curve_through(
                timings,
                self._levels_model(self._links, operation, ranks),
                reference=None if links[1] == self._links[1] else self._levels_model(links, operation, ranks),
            )
            for operation in Collective
            for ranks, timings in rows.between_nodes(operation, network).items()
        }

    def _levels_model(self, links: Sequence[LinkModel], operation: Collective, ranks_per_node: int) -> Model:
        def seconds(payload_bytes: Bytes, nodes: int) -> Seconds:
            levels = (ranks_per_node, ranks_per_node * nodes)
            return self._by_levels(links, operation, payload_bytes, levels).seconds

        return seconds


def _link(group: NodeGroup, level: Level) -> LinkModel:
    return LinkModel.of(level, is_network=level.devices > group.devices_per_node)


def _reference(group: NodeGroup, level: Level, bandwidth: BytesPerSecond | None) -> LinkModel:
    """Return the link that rows ran over: the level's own where they do not say."""
    if bandwidth is None:
        return _link(group, level)
    return LinkModel.of(level, is_network=level.devices > group.devices_per_node, bandwidth=bandwidth)


def _node_model(link: LinkModel, operation: Collective) -> Model:
    return lambda payload_bytes, ranks: link.seconds(operation, payload_bytes, ranks=ranks)


def _across(
    link: LinkModel, operation: Collective, payload_bytes: Bytes, *, below: int, ranks: int
) -> Estimate:
    """Return the time of the bytes that cross one level: all ranks of a domain below carry them."""
    if operation is Collective.ALL_TO_ALL:
        # Each rank sends its own, and only what leaves the domain crosses the level.
        seconds = payload_bytes * (ranks - below) / ranks / link.bytes_per_second
    elif operation in {Collective.SEND_RECEIVE, Collective.BROADCAST}:
        seconds = payload_bytes / link.bytes_per_second
    else:
        seconds = link.transfer_seconds(operation, payload_bytes, ranks=ranks) / below
    return Estimate(seconds=seconds, provenance=Provenance.DATASHEET, relative_error=NETWORK_ERROR)
