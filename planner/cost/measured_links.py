"""Measured curves over the links of one node group: inside its box, and between boxes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from planner.cluster import Level, NodeGroup
from planner.cost.collective_curves import Curve, Model, Timing, curve_through
from planner.cost.collective_model import LinkModel, across, is_network
from planner.cost.collective_rows import MeasuredCollectives, is_staged, network_bandwidth
from planner.units import Bytes, BytesPerSecond, Seconds
from planner.workload.operators import Collective

LEAST_PAYLOADS: Final = 3
"""Published rows of fewer sizes tell nothing of others: one alone shows neither start nor bandwidth."""

LevelsModel = Callable[[Sequence[LinkModel], Collective, int], Model]
"""Returns the time by payload and number of boxes over some links, for so many ranks per box."""


@dataclass(kw_only=True, slots=True, eq=False)
class MeasuredLinks:
    """The curves of one group, made when they are first asked for.

    A box is the largest domain whose devices share a node, or links as fast as inside one: what was
    measured inside a node speaks for it as a whole.
    """

    group: NodeGroup
    rows: Sequence[MeasuredCollectives]
    """The device's own, then its relatives'."""
    links: Sequence[LinkModel]
    _box: dict[tuple[Collective, bool], Curve | None] = field(default_factory=dict, init=False)
    _network: dict[tuple[Collective, int], Curve | None] = field(default_factory=dict, init=False)

    @property
    def box_level(self) -> int:
        """The number of the outermost level inside a node, or reaching beyond it as if inside."""
        inside = [number for number, level in enumerate(self.group.levels) if not self._is_network(level)]
        return max(inside, default=0)

    def in_box(self, operation: Collective, *, whole: bool) -> Curve | None:
        """Return the curve over ranks in a box: over its innermost level alone, or over the ``whole``."""
        key = (operation, whole)
        if key not in self._box:
            self._box[key] = self._make_box_curve(operation, top=self.box_level if whole else 0)
        return self._box[key]

    def between_boxes(self, operation: Collective, ranks_per_box: int, model: LevelsModel) -> Curve | None:
        """Return the curve over boxes of so many ranks; it follows ``model`` beyond what was measured."""
        key = (operation, ranks_per_box)
        if key not in self._network:
            self._network[key] = self._make_network_curve(operation, ranks_per_box, model)
        return self._network[key]

    def _make_box_curve(self, operation: Collective, *, top: int) -> Curve | None:
        for position, rows in enumerate(self.rows):
            timings = self._box_timings(rows, operation, top=top)
            if not _tells(rows, timings):
                continue
            for lender in self.rows[position + 1 :]:
                most = max(timing.count for timing in timings)
                lent = self._box_timings(lender, operation, top=top)
                timings = [*timings, *(timing for timing in lent if timing.count > most)]
            reference = self._reference(rows, top=top)
            return curve_through(
                timings,
                self._box_model(self.links, operation, top=top),
                reference=None if reference is None else self._box_model([reference], operation, top=top),
                larger_is_slower=all(link.fabric.is_switched for link in self.links[: top + 1]),
            )
        return None

    def _box_timings(self, rows: MeasuredCollectives, operation: Collective, *, top: int) -> list[Timing]:
        level = self.group.levels[top]
        if self._is_network(level):
            return rows.between_nodes(operation, level, ranks_per_box=1).get(1, [])
        timings = rows.inside(operation, self.group.levels[: top + 1])
        # Of nested levels the inner one is told by rows within it alone.
        return [timing for timing in timings if top == self.box_level or timing.count <= level.devices]

    def _reference(self, rows: MeasuredCollectives, *, top: int) -> LinkModel | None:
        """Return the link that rows ran over, None where that is the group's own, or nested levels."""
        if top > 0 or is_staged(self.group.levels[0]):
            return None
        link = link_of(self.group, 0, bandwidth=rows.reference_bandwidth())
        return None if link == self.links[0] else link

    def _box_model(self, links: Sequence[LinkModel], operation: Collective, *, top: int) -> Model:
        """Return the model of neighbours in a box, by the number of ranks."""
        if top == 0:
            return lambda payload_bytes, ranks: links[0].seconds(operation, payload_bytes, ranks=ranks)
        sizes = [level.devices for level in self.group.levels[: top + 1]]

        def seconds(payload_bytes: Bytes, ranks: int) -> Seconds:
            slowest, latency, below = 0.0, 0.0, 1
            for link, size in zip(links, sizes, strict=False):
                here = min(ranks, size)
                if here > below:
                    moved, wait = across(link, operation, payload_bytes, below=below, ranks=here)
                    slowest, latency = max(slowest, moved), latency + wait
                below = here
            return slowest + latency

        return seconds

    def _make_network_curve(
        self, operation: Collective, ranks_per_box: int, model: LevelsModel
    ) -> Curve | None:
        if len(self.links) != self.box_level + 2:
            # A box and one network, as the rows have it.
            return None
        network, box = self.group.levels[-1], self.group.levels[self.box_level]
        for rows in self.rows:
            found = rows.between_nodes(operation, network, ranks_per_box=box.devices)
            timings = found.get(ranks_per_box, [])
            if _tells(rows, timings):
                bandwidth = None if rows.describe_machine() else network_bandwidth(network)
                link = link_of(self.group, len(self.links) - 1, bandwidth=bandwidth)
                there = model([*self.links[:-1], link], operation, ranks_per_box)
                return curve_through(
                    timings,
                    model(self.links, operation, ranks_per_box),
                    reference=None if link == self.links[-1] else there,
                )
        return None

    def _is_network(self, level: Level) -> bool:
        return is_network(level, devices_per_node=self.group.devices_per_node)


def link_of(group: NodeGroup, number: int, *, bandwidth: BytesPerSecond | None = None) -> LinkModel:
    """Return the links of a level, with another bandwidth where one is given."""
    level = group.levels[number]
    return LinkModel.of(
        level,
        is_network=is_network(level, devices_per_node=group.devices_per_node),
        devices_below=group.levels[number - 1].devices if number else 1,
        bandwidth=bandwidth,
    )


def _tells(rows: MeasuredCollectives, timings: Sequence[Timing]) -> bool:
    payloads = {timing.payload_bytes for timing in timings}
    return len(payloads) >= (1 if rows.describe_machine() else LEAST_PAYLOADS)
