"""The machines: devices, links that nest in levels, node groups, hosts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from planner.units import Bytes, BytesPerSecond, FlopsPerSecond, Seconds, Watts


class Topology(StrEnum):
    """How the devices of one level are joined."""

    SWITCH = "switch"
    RING = "ring"
    MESH = "mesh"
    TORUS = "torus"


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One accelerator by its datasheet.

    ``memory_bytes`` is what the driver reports; rates are dense peaks by precision.
    """

    name: str
    memory_bytes: Bytes
    peak_flops_per_second: Mapping[str, FlopsPerSecond] = field(hash=False)
    memory_bandwidth_bytes_per_second: BytesPerSecond
    power_watts: Watts | None = None
    vendor: str = ""
    architecture: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One level of links, innermost first in a node group.

    ``devices`` share one domain of the level. ``bandwidth_bytes_per_second`` is per device and per
    direction; a device whose ``devices_per_link`` - 1 neighbours are silent may use their share.
    """

    name: str
    devices: int
    bandwidth_bytes_per_second: BytesPerSecond
    latency_seconds: Seconds
    in_network_reduction: bool = False
    oversubscription: float = 1.0
    devices_per_link: int = 1
    topology: Topology = Topology.SWITCH
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """The host of a node: memory, cores and the link to each device.

    ``memory_bandwidth_bytes_per_second`` is the datasheet's, of all sockets together.
    """

    memory_bytes: Bytes
    cpu_cores: int
    link_bytes_per_second: BytesPerSecond
    devices_per_link: int = 1
    memory_bandwidth_bytes_per_second: BytesPerSecond | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Nvme:
    """The NVMe drives of a node together."""

    capacity_bytes: Bytes
    read_bytes_per_second: BytesPerSecond
    write_bytes_per_second: BytesPerSecond


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeGroup:
    """Equal nodes with one kind of device; devices are numbered node by node."""

    name: str
    num_nodes: int
    devices_per_node: int
    device: Device
    levels: tuple[Level, ...]
    host: Host | None = None
    nvme: Nvme | None = None
    price_per_device_hour: float | None = None
    failures_per_device_hour: float | None = None

    @property
    def num_devices(self) -> int:
        """Devices of the whole group."""
        return self.num_nodes * self.devices_per_node


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupLink:
    """The link between two node groups; bandwidth per device and direction."""

    groups: tuple[str, str]
    bandwidth_bytes_per_second: BytesPerSecond
    latency_seconds: Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Node groups and what joins them."""

    name: str
    node_groups: tuple[NodeGroup, ...]
    between_groups: tuple[GroupLink, ...] = ()

    @property
    def num_devices(self) -> int:
        """Devices of all groups together."""
        return sum(group.num_devices for group in self.node_groups)

    @property
    def group_names(self) -> tuple[str, ...]:
        """The names of the node groups, in their order."""
        return tuple(group.name for group in self.node_groups)

    def group(self, name: str) -> NodeGroup:
        """Return the node group of a name; KeyError for another one."""
        return {group.name: group for group in self.node_groups}[name]

    def link_between(self, one: str, other: str) -> GroupLink | None:
        """Return the fastest link that joins two node groups, None where nothing does."""
        joining = [link for link in self.between_groups if set(link.groups) == {one, other}]
        return max(joining, key=lambda link: link.bandwidth_bytes_per_second, default=None)

    def only(self, name: str) -> "Cluster":
        """Return one of the node groups as a cluster of its own; KeyError for a name that none has."""
        return Cluster(name=self.name, node_groups=(self.group(name),))
