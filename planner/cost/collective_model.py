"""What a collective takes by its volume and its hops, where nothing was measured: a ring or a tree."""

from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Final

from planner.cluster import Level
from planner.cost.fabric import SWITCHED, Fabric, Paths, exchanged_bytes
from planner.units import Bytes, BytesPerSecond, Seconds
from planner.workload.operators import Collective

START_SECONDS: Final[Seconds] = 6e-6
"""The smallest collectives between two devices of a node take 5 to 10 us."""
NODE_HOP_SECONDS: Final[Seconds] = 1.5e-6
NETWORK_HOP_SECONDS: Final[Seconds] = 9e-6
"""What the library adds to a link's latency on each hop: NCCL's own tables give 3.4 us a hop inside an
H100 node and 14 us between nodes, where the links themselves take 2 and 5 us."""
IN_NETWORK_VOLUME: Final = 9 / 8
"""Payloads that cross a rank's link when the switch adds: its data once, and with eight ranks an eighth
for the sum; fewer ranks are taken alike, so that a larger group is never faster."""
NODE_EFFICIENCY: Final = 0.80
"""Share of its bandwidth that a link inside a node carries in large collectives: 0.72 to 0.78 on A100,
0.75 for rings on H100 and H200, 0.65 to 0.85 on B200."""
PCIE_EFFICIENCY: Final = 0.60
"""The same of PCIe: 0.75 on A100 PCIe and H100 NVL, 0.64 on L40S, 0.60 to 0.40 on RTX PRO 6000."""
NETWORK_EFFICIENCY: Final = 0.92
"""Share of the network's rate that large all-reduces reach: 356 to 387 of 400 GB/s per node over 12
nodes of 8 x 400 Gb/s InfiniBand, 365 to 370 of 400 GB/s over 4 to 16 nodes at 3.2 Tb/s."""
OMNI_PATH_EFFICIENCY: Final = 0.27
"""The same of Omni-Path, whose links NCCL does not fill: BigScience's bandwidth tests reduce 55 Gb/s, which
is 55 x 2 x 63/64 = 108 Gb/s on the bus, over 16 nodes of 4 x 100 Gb/s (44 to 57 Gb/s in longer ones)."""


PCIE: Final = "pcie"
OMNI_PATH: Final = "omni"
FABRICS: Final = ("nvlink", "xgmi", "infinity", "ici")
"""How the names of links begin that reach beyond a node as they do inside."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkModel:
    """The links of one level as a collective meets them."""

    bytes_per_second: BytesPerSecond
    hop_seconds: Seconds
    in_network_reduction: bool
    fabric: Fabric = SWITCHED
    carriers: int | None = None
    """How many devices of a domain below carry a collective's bytes at once, at most; None means all.

    To a network each brings a port of its own. In a node a ring leaves a domain through one device:
    four A100 or H100 in bridged pairs reach 0.75 of one PCIe link, not of two.
    """

    @classmethod
    def of(
        cls,
        level: Level,
        *,
        is_network: bool,
        devices_below: int = 1,
        bandwidth: BytesPerSecond | None = None,
    ) -> "LinkModel":
        """Return the links of a level, between the devices of a node or between nodes.

        ``devices_below`` share a domain of the level below; ``bandwidth`` takes the place of the
        level's own, for links that others measured over.
        """
        name = level.name.lower()
        in_node = PCIE_EFFICIENCY if name.startswith(PCIE) else NODE_EFFICIENCY
        between = OMNI_PATH_EFFICIENCY if name.startswith(OMNI_PATH) else NETWORK_EFFICIENCY
        efficiency = between if is_network else in_node
        hop = NETWORK_HOP_SECONDS if is_network else NODE_HOP_SECONDS
        own = level.bandwidth_bytes_per_second / level.oversubscription
        return cls(
            bytes_per_second=efficiency * (own if bandwidth is None else bandwidth),
            hop_seconds=level.latency_seconds + hop,
            in_network_reduction=level.in_network_reduction,
            fabric=Fabric.of(level, devices_below=devices_below),
            carriers=None if is_network else level.devices_per_link,
        )

    def shared_by(self, talkers: int, *, devices_per_link: int) -> "LinkModel":
        """Return the links where ``talkers`` of the devices that share one talk at once."""
        share = devices_per_link / max(1, min(talkers, devices_per_link))
        return replace(self, bytes_per_second=self.bytes_per_second * share)

    def seconds(self, operation: Collective, payload_bytes: Bytes, *, ranks: int, stride: int = 1) -> Seconds:
        """Return the whole time between ``ranks`` devices that this level alone joins."""
        paths = self.fabric.paths(ranks, stride=stride)
        hops_seconds = START_SECONDS + self.latency_seconds(operation, domains=ranks, paths=paths)
        return hops_seconds + self.transfer_seconds(operation, payload_bytes, ranks=ranks, paths=paths)

    def transfer_seconds(
        self, operation: Collective, payload_bytes: Bytes, *, ranks: int, paths: Paths
    ) -> Seconds:
        """Return the time of the bytes that each of ``ranks`` sends over its link."""
        volume = exchanged_bytes(operation, payload_bytes, paths, ranks=ranks)
        if self.in_network_reduction and operation is Collective.ALL_REDUCE:
            volume = min(volume, IN_NETWORK_VOLUME * payload_bytes)
        return volume / self.bytes_per_second

    def latency_seconds(self, operation: Collective, *, domains: int, paths: Paths) -> Seconds:
        """Return the hops between ``domains`` that follow each other."""
        return hops(operation, domains, steps=paths.steps) * self.hop_seconds


def across(
    link: LinkModel,
    operation: Collective,
    payload_bytes: Bytes,
    *,
    below: int,
    ranks: int,
    stride: int = 1,
) -> tuple[Seconds, Seconds]:
    """Return the time of the bytes that cross one level, and of its hops.

    ``below`` of the ``ranks`` share a domain of the level below; ``stride`` counts domains.
    """
    domains = -(-ranks // below)
    paths = link.fabric.paths(domains, stride=stride)
    wait = link.latency_seconds(operation, domains=domains, paths=paths)
    if operation is Collective.ALL_TO_ALL:
        # Each rank sends its own, and only what leaves the domain crosses the level.
        leaving = (ranks - below) / ranks / ((domains - 1) / domains)
        return leaving * paths.exchange * payload_bytes / link.bytes_per_second, wait
    if operation in {Collective.SEND_RECEIVE, Collective.BROADCAST}:
        return exchanged_bytes(operation, payload_bytes, paths, ranks=ranks) / link.bytes_per_second, wait
    carriers = below if link.carriers is None else min(below, link.carriers)
    return link.transfer_seconds(operation, payload_bytes, ranks=ranks, paths=paths) / carriers, wait


def is_network(level: Level, *, devices_per_node: int) -> bool:
    """Tell whether a level joins nodes as a network does, rather than as links inside a node do."""
    return level.devices > devices_per_node and not level.name.lower().startswith(FABRICS)


def bytes_per_rank(operation: Collective, payload_bytes: Bytes, ranks: int) -> Bytes:
    """Return the bytes that each rank sends in a ring; a bus bandwidth is these over the time."""
    return exchanged_bytes(operation, payload_bytes, SWITCHED.paths(ranks), ranks=ranks)


def hops(operation: Collective, domains: int, *, steps: int | None = None) -> int:
    """Return how many hops follow each other: a tree up and down, a tree, one, or a ring.

    ``steps`` are those of a gather where domains are joined directly.
    """
    if domains <= 1:
        return 0
    if steps is not None:
        return {Collective.ALL_REDUCE: 2 * steps, Collective.SEND_RECEIVE: 1}.get(operation, steps)
    if operation is Collective.ALL_REDUCE:
        return 2 * ceil(log2(domains))
    if operation is Collective.BROADCAST:
        return ceil(log2(domains))
    if operation in {Collective.SEND_RECEIVE, Collective.ALL_TO_ALL}:
        return 1
    return domains - 1
