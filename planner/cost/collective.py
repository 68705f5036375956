"""The time of a collective: measured curves inside a node, level by level beyond."""

from collections.abc import Sequence
from typing import Final

from planner.cluster import NodeGroup
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
MANY_RANKS: Final = 2**20
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
        self._rows = MeasuredCollectives(profiles=own)
        self._links = [_link(group, number) for number in range(len(group.levels))]
        self._node_curves: dict[Collective, Curve | None] = {}
        self._network_curves: dict[tuple[Collective, int], Curve | None] = {}
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
        measured = self._network_curve(operation, shape.ranks_per_node) if nodes > 1 else None
        if measured is not None:
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
        curve = self._node_curve(operation)
        if curve is not None:
            return curve.estimate(payload_bytes, ranks)
        for other in DERIVED_FROM:
            curve = self._node_curve(other)
            if curve is not None:
                return _derived(curve, other, operation, payload_bytes, ranks)
        seconds = self._links[0].seconds(operation, payload_bytes, ranks=ranks)
        return Estimate(seconds=seconds, provenance=Provenance.DATASHEET, relative_error=UNMEASURED_ERROR)

    def _node_curve(self, operation: Collective) -> Curve | None:
        """Return the curve over ranks of an operation that was measured inside a node."""
        if operation not in self._node_curves:
            self._node_curves[operation] = self._make_node_curve(operation)
        return self._node_curves[operation]

    def _make_node_curve(self, operation: Collective) -> Curve | None:
        timings = self._rows.inside_node(operation)
        if not timings:
            return None
        link = self._links[0]
        reference = _link(self._group, 0, bandwidth=self._rows.reference_bandwidth())
        return curve_through(
            timings,
            _node_model(link, operation),
            reference=None if reference == link else _node_model(reference, operation),
        )

    def _network_curve(self, operation: Collective, ranks_per_node: int) -> Curve | None:
        """Return the curve over nodes of an operation that was measured between nodes."""
        key = (operation, ranks_per_node)
        if key not in self._network_curves:
            self._network_curves[key] = self._make_network_curve(operation, ranks_per_node)
        return self._network_curves[key]

    def _make_network_curve(self, operation: Collective, ranks_per_node: int) -> Curve | None:
        if len(self._links) != 2:  # noqa: PLR2004 - a node and a network, as the rows have it
            return None
        network = self._group.levels[1]
        timings = self._rows.between_nodes(operation, network).get(ranks_per_node)
        if timings is None:
            return None
        bandwidth = None if self._rows.describe_machine() else network_bandwidth(network)
        links = (self._links[0], _link(self._group, 1, bandwidth=bandwidth))
        return curve_through(
            timings,
            self._levels_model(self._links, operation, ranks_per_node),
            reference=None
            if links[1] == self._links[1]
            else self._levels_model(links, operation, ranks_per_node),
        )

    def _levels_model(self, links: Sequence[LinkModel], operation: Collective, ranks_per_node: int) -> Model:
        def seconds(payload_bytes: Bytes, nodes: int) -> Seconds:
            levels = (ranks_per_node, ranks_per_node * nodes)
            return self._by_levels(links, operation, payload_bytes, levels).seconds

        return seconds


def _link(group: NodeGroup, number: int, *, bandwidth: BytesPerSecond | None = None) -> LinkModel:
    """Return the links of a level, the innermost inside a node, with another bandwidth where one is given."""
    return LinkModel.of(group.levels[number], is_network=number > 0, bandwidth=bandwidth)


def _derived(
    curve: Curve, measured: Collective, operation: Collective, payload_bytes: Bytes, ranks: int
) -> Estimate:
    """Return the time of the measured operation at equal bytes per rank.

    A broadcast is compared over many ranks, or a larger group would seem to move less.
    """
    compared = MANY_RANKS if operation is Collective.BROADCAST else ranks
    volume = bytes_per_rank(operation, payload_bytes, compared)
    estimate = curve.estimate(volume / bytes_per_rank(measured, 1.0, compared), ranks)
    return Estimate(
        seconds=estimate.seconds,
        provenance=Provenance.INTERPOLATED,
        relative_error=max(DERIVED_ERROR, estimate.relative_error),
    )


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
