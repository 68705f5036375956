"""The machines of one kind on the wire: their devices, links, hosts and drives."""

from math import prod
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.device import DeviceChoice, DeviceDocument
from api.schemas.document import (
    EXPERIMENTAL,
    DeviceCount,
    Flag,
    InputDocument,
    Latency,
    Name,
    NonNegative,
    Number,
    Quantity,
    one_of,
)
from planner.cluster import Device, Host, Level, NodeGroup, Nvme, Topology
from planner.devices import device_by_name

MAX_OVERSUBSCRIPTION = 1e4
MAX_DIMENSIONS = 6
"""Of a torus: the network with the most of them so far, Tofu, has six."""

Oversubscription = Annotated[float, Number, Field(ge=1, le=MAX_OVERSUBSCRIPTION, allow_inf_nan=False)]
KnownTopology = Annotated[Topology, one_of(Topology)]


class LevelDocument(InputDocument):
    """One level of links; ``devices`` share one domain of it."""

    name: Name
    devices: DeviceCount
    bandwidth_bytes_per_second: Quantity = Field(description="Per device and direction.")
    latency_seconds: Latency
    in_network_reduction: Flag = False
    oversubscription: Oversubscription = 1.0
    devices_per_link: DeviceCount = Field(
        default=1, description="A device whose neighbours on the link are silent may use their share."
    )
    topology: KnownTopology = Field(
        default=Topology.SWITCH,
        description="How the domains of the level below are joined. A mesh without a shape has a link "
        "between any two of them, with a shape it is a grid.",
        json_schema_extra=EXPERIMENTAL,
    )
    shape: Annotated[tuple[DeviceCount, ...], Field(min_length=1, max_length=MAX_DIMENSIONS)] | None = Field(
        default=None,
        description="Extents of a ring, grid or torus, the dimension numbered fastest first.",
        json_schema_extra=EXPERIMENTAL,
    )

    @model_validator(mode="after")
    def _shape_is_of_the_topology(self) -> Self:
        """Refuse a torus without a shape, and a shape that the topology cannot have."""
        if self.topology is Topology.TORUS and self.shape is None:
            raise PydanticCustomError("shape", "of a torus is missing", {"field": "shape"})
        if self.shape is not None and self.topology is Topology.SWITCH:
            raise PydanticCustomError("shape", "is for a ring, mesh or torus", {"field": "shape"})
        if self.topology is Topology.RING and self.shape is not None and len(self.shape) > 1:
            raise PydanticCustomError("shape", "of a ring should have one extent", {"field": "shape"})
        return self

    @classmethod
    def from_level(cls, level: Level) -> Self:
        """Return the document of a level."""
        return cls(
            name=level.name,
            devices=level.devices,
            bandwidth_bytes_per_second=level.bandwidth_bytes_per_second,
            latency_seconds=level.latency_seconds,
            in_network_reduction=level.in_network_reduction,
            oversubscription=level.oversubscription,
            devices_per_link=level.devices_per_link,
            topology=level.topology,
            shape=level.shape,
        )

    def to_level(self) -> Level:
        """Return the level that the document says."""
        return Level(
            name=self.name,
            devices=self.devices,
            bandwidth_bytes_per_second=self.bandwidth_bytes_per_second,
            latency_seconds=self.latency_seconds,
            in_network_reduction=self.in_network_reduction,
            oversubscription=self.oversubscription,
            devices_per_link=self.devices_per_link,
            topology=self.topology,
            shape=self.shape,
        )


class HostDocument(InputDocument):
    """The host of a node; the link is that of each device."""

    memory_bytes: Quantity
    cpu_cores: DeviceCount
    link_bytes_per_second: Quantity
    devices_per_link: DeviceCount = 1
    memory_bandwidth_bytes_per_second: Quantity | None = Field(
        default=None,
        description="Of all sockets together, by the datasheet; unknown, the cores say it.",
        json_schema_extra=EXPERIMENTAL,
    )

    @classmethod
    def from_host(cls, host: Host) -> Self:
        """Return the document of a host."""
        return cls(
            memory_bytes=host.memory_bytes,
            cpu_cores=host.cpu_cores,
            link_bytes_per_second=host.link_bytes_per_second,
            devices_per_link=host.devices_per_link,
            memory_bandwidth_bytes_per_second=host.memory_bandwidth_bytes_per_second,
        )

    def to_host(self) -> Host:
        """Return the host that the document says."""
        return Host(
            memory_bytes=self.memory_bytes,
            cpu_cores=self.cpu_cores,
            link_bytes_per_second=self.link_bytes_per_second,
            devices_per_link=self.devices_per_link,
            memory_bandwidth_bytes_per_second=self.memory_bandwidth_bytes_per_second,
        )


class NvmeDocument(InputDocument):
    """The drives of a node together."""

    capacity_bytes: Quantity
    read_bytes_per_second: Quantity
    write_bytes_per_second: Quantity

    @classmethod
    def from_nvme(cls, nvme: Nvme) -> Self:
        """Return the document of the drives."""
        return cls(
            capacity_bytes=nvme.capacity_bytes,
            read_bytes_per_second=nvme.read_bytes_per_second,
            write_bytes_per_second=nvme.write_bytes_per_second,
        )

    def to_nvme(self) -> Nvme:
        """Return the drives that the document says."""
        return Nvme(
            capacity_bytes=self.capacity_bytes,
            read_bytes_per_second=self.read_bytes_per_second,
            write_bytes_per_second=self.write_bytes_per_second,
        )


class NodeGroupDocument(InputDocument):
    """Equal nodes with one kind of device; levels innermost first."""

    name: Name
    num_nodes: DeviceCount
    devices_per_node: DeviceCount
    device: DeviceChoice
    levels: tuple[LevelDocument, ...] = ()
    host: HostDocument | None = None
    nvme: NvmeDocument | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    price_per_device_hour: NonNegative | None = Field(default=None, json_schema_extra=EXPERIMENTAL)
    failures_per_device_hour: NonNegative | None = Field(default=None, json_schema_extra=EXPERIMENTAL)

    @model_validator(mode="after")
    def _levels_nest(self) -> Self:
        """Refuse levels that do not nest in each other up to one domain of all devices."""
        inner = 1
        for level in self.levels:
            if level.devices % inner:
                raise PydanticCustomError(
                    "levels",
                    "should nest, innermost first: {name} joins {devices} devices, the one inside {inner}",
                    {"name": level.name, "devices": level.devices, "inner": inner, "field": "levels"},
                )
            if level.shape is not None and prod(level.shape) not in {level.devices, level.devices // inner}:
                raise PydanticCustomError(
                    "shape",
                    "of {name} holds {held}, not its {devices} devices or the {domains} domains inside it",
                    {
                        "name": level.name,
                        "held": prod(level.shape),
                        "devices": level.devices,
                        "domains": level.devices // inner,
                        "field": "levels",
                    },
                )
            inner = level.devices
        num_devices = self.num_nodes * self.devices_per_node
        if inner < num_devices:
            raise PydanticCustomError(
                "levels",
                "should join all {num_devices} devices of the group; the outermost joins {inner}",
                {"num_devices": num_devices, "inner": inner, "field": "levels"},
            )
        return self

    @classmethod
    def from_group(cls, group: NodeGroup) -> Self:
        """Return the document of a node group, its device by its numbers."""
        return cls(
            name=group.name,
            num_nodes=group.num_nodes,
            devices_per_node=group.devices_per_node,
            device=DeviceDocument.from_device(group.device),
            levels=tuple(map(LevelDocument.from_level, group.levels)),
            host=None if group.host is None else HostDocument.from_host(group.host),
            nvme=None if group.nvme is None else NvmeDocument.from_nvme(group.nvme),
            price_per_device_hour=group.price_per_device_hour,
            failures_per_device_hour=group.failures_per_device_hour,
        )

    def to_group(self, *, pointer: str) -> NodeGroup:
        """Return the node group that the document says; InvalidRequest where its device is not clear."""
        return NodeGroup(
            name=self.name,
            num_nodes=self.num_nodes,
            devices_per_node=self.devices_per_node,
            device=self._device(pointer=f"{pointer}/device"),
            levels=tuple(level.to_level() for level in self.levels),
            host=None if self.host is None else self.host.to_host(),
            nvme=None if self.nvme is None else self.nvme.to_nvme(),
            price_per_device_hour=self.price_per_device_hour,
            failures_per_device_hour=self.failures_per_device_hour,
        )

    def _device(self, *, pointer: str) -> Device:
        if isinstance(self.device, DeviceDocument):
            return self.device.to_device()
        return device_by_name(self.device, pointer=pointer)
