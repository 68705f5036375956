"""The time of a collective: measured curves inside a box of fast links, level by level beyond."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Final

from planner.cluster import NodeGroup
from planner.cost.collective_curves import Curve, Model
from planner.cost.collective_model import LinkModel, across, bytes_per_rank
from planner.cost.collective_rows import measured_collectives
from planner.cost.corrections import Corrections, Kind
from planner.cost.geometry import Axes
from planner.cost.group_shape import GroupShape, group_shape, spread_shape
from planner.cost.machine_facts import MachineFacts, Place
from planner.cost.measured_links import MeasuredLinks, link_of
from planner.cost.profile_set import ProfileSet
from planner.profile import Estimate, Profile, Provenance
from planner.units import Bytes, Seconds
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
MOST_OPEN: Final = 32
"""Node groups whose measured curves stay: each takes milliseconds to draw."""
NOTHING: Final = Estimate(seconds=0.0, provenance=Provenance.MEASURED, relative_error=0.0)


class CollectiveCosts:
    """What collectives take between the devices of one node group."""

    def __init__(self, group: NodeGroup, profiles: Sequence[Profile]) -> None:
        """Take the collective rows of the group's device among the profiles, and of its relatives.

        Raises InvalidRequest for a level whose shape does not hold its devices.
        """
        self._group = group
        self.corrections = Corrections.of(group.device, profiles)
        self._crowding = MachineFacts.of(group.device, profiles).crowding
        self._links = [link_of(group, number) for number in range(len(group.levels))]
        self._measured = MeasuredLinks(
            group=group, rows=measured_collectives(group.device, profiles), links=self._links
        )
        self._answers: dict[tuple[Collective, Bytes, GroupShape], Estimate] = {}
        self._shapes: dict[tuple[int, int, int | None], GroupShape] = {}
        self._spread: dict[Axes, GroupShape] = {}

    @classmethod
    def opened(cls, group: NodeGroup, profiles: Sequence[Profile]) -> "CollectiveCosts":
        """Return new costs, or as good as new: the curves of the last groups are kept."""
        costs = _opened(group, ProfileSet.of(profiles))
        return costs.corrected(costs.corrections)

    def shape(self, *, size: int, stride: int = 1, talking: int | None = None) -> GroupShape:
        """Return where ``size`` ranks ``stride`` apart sit in the node group; see `group_shape`."""
        key = (size, stride, talking)
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = group_shape(self._group, size=size, stride=stride, talking=talking)
        return known

    def spread(self, axes: Axes) -> GroupShape:
        """Return where ranks along some axes sit in the node group; see `spread_shape`."""
        match axes:
            case ():
                return self.shape(size=1)
            case ((stride, size),):
                return self.shape(size=size, stride=stride)
        known = self._spread.get(axes)
        if known is None:
            known = self._spread[axes] = spread_shape(self._group, axes)
        return known

    def corrected(self, corrections: Corrections) -> "CollectiveCosts":
        """Return the same measurements under other corrections."""
        other = copy(self)
        vars(other).update(corrections=corrections, _answers={})
        return other

    def seconds(self, operation: Collective, *, payload_bytes: Bytes, shape: GroupShape) -> Estimate:
        """Return the time of one collective, its payload counted as nccl-tests count it."""
        key = (operation, payload_bytes, shape)
        known = self._answers.get(key)
        if known is None:
            is_inside = shape.size <= shape.ranks_per_level[self._measured.box_level]
            kind = Kind.COLLECTIVE_INSIDE if is_inside else Kind.COLLECTIVE_BETWEEN
            measured = self._seconds(operation, payload_bytes, shape)
            known = self._answers[key] = self.corrections.applied(measured, kind)
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
        in_box = shape.ranks_per_level[self._measured.box_level]
        boxes = -(-shape.size // in_box)
        if boxes > 1 and not self._has_silent_neighbours(shape):
            curve = self._measured.between_boxes(operation, in_box, self._levels_model)
            if curve is not None:
                return self._crowded_between(curve, payload_bytes, boxes, in_box)
        return self._by_levels(self._links_of(shape), operation, payload_bytes, shape)

    def _by_levels(
        self, links: Sequence[LinkModel], operation: Collective, payload_bytes: Bytes, shape: GroupShape
    ) -> Estimate:
        """Return the levels' times put together: they work as one pipeline, their hops add up."""
        whole_box = self._in_box(operation, payload_bytes, shape)
        innermost = whole_box or self._innermost(links[0], operation, payload_bytes, shape)
        parts, latency = [innermost], 0.0
        for number in range(self._measured.box_level + 1 if whole_box else 1, len(links)):
            below, ranks = shape.ranks_per_level[number - 1], shape.ranks_per_level[number]
            if ranks > below:
                stride = max(1, shape.stride // self._group.levels[number - 1].devices)
                moved, wait = across(
                    links[number], operation, payload_bytes, below=below, ranks=ranks, stride=stride
                )
                parts.append(_from_datasheet(moved, NETWORK_ERROR))
                latency += wait
        slowest = max(parts, key=lambda part: part.seconds)
        # In parts of the slowest, since a fourth power of seconds would underflow.
        shares = sum((part.seconds / slowest.seconds) ** OVERLAP_POWER for part in parts)
        return Estimate(
            seconds=slowest.seconds * shares ** (1.0 / OVERLAP_POWER) + latency,
            provenance=max((part.provenance for part in parts), key=list(Provenance).index),
            relative_error=slowest.relative_error,
        )

    def _in_box(self, operation: Collective, payload_bytes: Bytes, shape: GroupShape) -> Estimate | None:
        """Return what was measured across nested levels of the box; None where that says nothing.

        Rows were measured on neighbours.
        """
        ranks = shape.ranks_per_level[self._measured.box_level]
        is_within_innermost = ranks == shape.ranks_per_level[0]
        if is_within_innermost or shape.stride > 1 or self._has_silent_neighbours(shape):
            return None
        return self._measured_in_box(operation, payload_bytes, ranks, whole=True)

    def _innermost(
        self, link: LinkModel, operation: Collective, payload_bytes: Bytes, shape: GroupShape
    ) -> Estimate:
        ranks = shape.ranks_per_level[0]
        if ranks == 1:
            return NOTHING
        # Behind one switch any ranks are neighbours.
        is_like_measured = link.fabric.is_switched or shape.stride == 1
        if is_like_measured and not self._has_silent_neighbours(shape):
            measured = self._measured_in_box(operation, payload_bytes, ranks, whole=False)
            if measured is not None:
                return measured
        seconds = link.seconds(operation, payload_bytes, ranks=ranks, stride=shape.stride)
        return _from_datasheet(seconds, UNMEASURED_ERROR)

    def _measured_in_box(
        self, operation: Collective, payload_bytes: Bytes, ranks: int, *, whole: bool
    ) -> Estimate | None:
        alone = self._alone_in_box(operation, payload_bytes, ranks, whole=whole)
        devices = self._group.levels[self._measured.box_level if whole else 0].devices
        crowding = self._crowding.get(Place.INSIDE, 1.0)
        if alone is None or crowding == 1.0 or ranks >= devices:
            return alone
        # All groups of a box together never take longer than one of all their ranks, which moves as much
        # through every link: a larger group is then never faster.
        most = self._alone_in_box(operation, payload_bytes, devices, whole=whole)
        return _slowed(alone, crowding, most=inf if most is None else most.seconds)

    def _alone_in_box(
        self, operation: Collective, payload_bytes: Bytes, ranks: int, *, whole: bool
    ) -> Estimate | None:
        """Return the time of one group in a box while all others are silent, as it was measured."""
        curve = self._measured.in_box(operation, whole=whole)
        if curve is not None:
            return curve.estimate(payload_bytes, ranks)
        for other in DERIVED_FROM:
            curve = self._measured.in_box(other, whole=whole)
            if curve is not None:
                return _derived(curve, other, operation, payload_bytes, ranks)
        return None

    def _crowded_between(self, curve: Curve, payload_bytes: Bytes, boxes: int, in_box: int) -> Estimate:
        """Return the time of one of the groups that leave the same boxes."""
        alone = curve.estimate(payload_bytes, boxes)
        if in_box >= self._group.levels[self._measured.box_level].devices:
            return alone
        return _slowed(alone, self._crowding.get(Place.BETWEEN, 1.0))

    def _levels_model(self, links: Sequence[LinkModel], operation: Collective, ranks_per_box: int) -> Model:
        levels = self._group.levels[: self._measured.box_level + 1]
        inside = tuple(min(ranks_per_box, level.devices) for level in levels)

        def seconds(payload_bytes: Bytes, boxes: int) -> Seconds:
            size = ranks_per_box * boxes
            shape = GroupShape(
                size=size,
                stride=1,
                ranks_per_node=inside[0],
                ranks_per_level=(*inside[:-1], ranks_per_box, size),
                talking=self._group.num_devices,
            )
            return self._by_levels(links, operation, payload_bytes, shape).seconds

        return seconds

    def _links_of(self, shape: GroupShape) -> list[LinkModel]:
        """Return the links as a group finds them, whole where their other users are silent."""
        return [
            link.shared_by(shape.talking, devices_per_link=level.devices_per_link)
            for link, level in zip(self._links, self._group.levels, strict=True)
        ]

    def _has_silent_neighbours(self, shape: GroupShape) -> bool:
        return any(shape.talking < level.devices_per_link for level in self._group.levels)


@lru_cache(maxsize=MOST_OPEN)
def _opened(group: NodeGroup, profiles: ProfileSet) -> CollectiveCosts:
    return CollectiveCosts(group, profiles.profiles)


def _slowed(alone: Estimate, factor: float, *, most: Seconds = inf) -> Estimate:
    seconds = max(min(alone.seconds * factor, most), alone.seconds)
    return replace(alone, seconds=seconds)


def _from_datasheet(seconds: Seconds, relative_error: float) -> Estimate:
    return Estimate(seconds=seconds, provenance=Provenance.DATASHEET, relative_error=relative_error)


def _derived(
    curve: Curve, measured: Collective, operation: Collective, payload_bytes: Bytes, ranks: int
) -> Estimate:
    """Return the time of the measured operation at equal bytes per rank.

    A broadcast is compared over many ranks, or a larger group would seem to move less.
    """
    compared = MANY_RANKS if operation is Collective.BROADCAST else ranks
    volume = bytes_per_rank(operation, payload_bytes, compared)
    estimate = curve.estimate(volume / bytes_per_rank(measured, 1.0, compared), ranks)
    return replace(
        estimate,
        provenance=Provenance.INTERPOLATED,
        relative_error=max(DERIVED_ERROR, estimate.relative_error),
    )
