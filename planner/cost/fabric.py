"""What part of its links a group can use, by how devices are joined: switch, full mesh, ring, grid, torus."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Final

from planner.cluster import Level, Topology
from planner.errors import InvalidRequest
from planner.units import Bytes
from planner.workload.operators import Collective

BOTH_WAYS: Final = 2
"""Links of a device along one dimension of a ring or torus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """What a group of domains meets, as multiples of a switch that gives each device its whole bandwidth.

    ``gather`` counts for all-reduce, all-gather and reduce-scatter, ``message`` for one message,
    ``exchange`` is the payload of an all-to-all that the fullest link carries, over a device's bandwidth.
    """

    gather: float
    message: float
    exchange: float
    steps: int | None = None
    """Neighbours that a gather passes one after the other; None behind a switch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
    """The links of one level between ``extents`` domains, the first dimension numbered fastest."""

    topology: Topology
    extents: tuple[int, ...]

    @classmethod
    def of(cls, level: Level, *, devices_below: int) -> "Fabric":
        """Return the fabric of a level whose domains hold ``devices_below`` devices each.

        Raises InvalidRequest for a shape that does not hold the level's devices or domains.
        """
        domains = max(1, level.devices // devices_below)
        extents = level.shape or (domains,)
        if level.topology is not Topology.SWITCH and prod(extents) not in {domains, level.devices}:
            raise InvalidRequest(
                f"the shape {'x'.join(map(str, extents))} of {level.name} holds {prod(extents)} devices, "
                f"not {level.devices}",
                pointer="/cluster/node_groups",
            )
        return cls(topology=level.topology, extents=tuple(extents))

    @property
    def is_switched(self) -> bool:
        """Whether a smaller group finds as much bandwidth as a larger one."""
        return self.topology is Topology.SWITCH

    def paths(self, domains: int, *, stride: int = 1) -> Paths:
        """Return what ``domains`` domains, ``stride`` apart, meet while their neighbours do the same."""
        if self.topology is Topology.SWITCH or domains <= 1:
            return Paths(gather=1.0, message=1.0, exchange=(domains - 1) / domains)
        if self.topology is Topology.MESH and len(self.extents) == 1:
            return self._pairwise(domains)
        lines = _lines(self.extents, domains, stride, wraps=self.topology is not Topology.MESH)
        return _along(lines, num_dims=len(self.extents))

    def _pairwise(self, domains: int) -> Paths:
        """Return the paths where each pair has a link of its own: 1 / (n - 1) of a device's bandwidth."""
        others = max(self.extents[0], domains) - 1
        return Paths(
            gather=others / (domains - 1),
            message=float(others),
            exchange=others / domains,
            steps=1,
        )


SWITCHED: Final = Fabric(topology=Topology.SWITCH, extents=(1,))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """A group's ranks along one dimension."""

    ranks: int
    shared_by: int
    """Groups that lie between the ranks and use the same links."""
    wraps: bool

    @property
    def ways(self) -> float:
        """Links that a rank has along the line, with those of other groups counted off."""
        return (BOTH_WAYS if self.wraps else 1) / self.shared_by


def _lines(extents: Sequence[int], domains: int, stride: int, *, wraps: bool) -> list[_Line]:
    """Return the dimensions that a group spans."""
    lines, left, step = [], domains, stride
    for extent in extents:
        if step >= extent:
            step = ceil(step / extent)
            continue
        here = min(left, ceil(extent / step))
        closes = wraps and here * step >= extent > BOTH_WAYS
        if here > 1:
            lines.append(_Line(ranks=here, shared_by=step, wraps=closes))
        left, step = ceil(left / here), 1
    return lines or [_Line(ranks=domains, shared_by=1, wraps=False)]


def _along(lines: Sequence[_Line], *, num_dims: int) -> Paths:
    """Return the paths along lines that all work at once.

    A gather moves over all of them in parallel; an all-to-all is bound by the middle of the longest.
    """
    all_ways = BOTH_WAYS * num_dims
    return Paths(
        gather=all_ways / sum(line.ways for line in lines),
        message=all_ways / max(line.ways / (BOTH_WAYS if line.wraps else 1) for line in lines),
        exchange=all_ways * max(line.ranks / 4 / line.ways for line in lines),
        steps=sum(ceil((line.ranks - 1) / (BOTH_WAYS if line.wraps else 1)) for line in lines),
    )


def exchanged_bytes(operation: Collective, payload_bytes: Bytes, paths: Paths, *, ranks: int) -> Bytes:
    """Return the bytes that each of ``ranks`` sends, counted as if a switch gave each its whole bandwidth.

    In a ring an all-reduce sends 2 (n - 1) / n of the payload, an all-gather and a reduce-scatter half of
    that; a bus bandwidth is these over the time.
    """
    share = (ranks - 1) / ranks
    if operation is Collective.ALL_TO_ALL:
        return paths.exchange * payload_bytes
    if operation in {Collective.SEND_RECEIVE, Collective.BROADCAST}:
        return paths.message * payload_bytes
    return paths.gather * share * payload_bytes * (2.0 if operation is Collective.ALL_REDUCE else 1.0)
