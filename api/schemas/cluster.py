"""The machines on the wire: a system by name, or node groups and what joins them."""

import re
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.document import (
    EXPERIMENTAL,
    DeviceCount,
    InputDocument,
    Latency,
    Name,
    Quantity,
    refuse_text,
)
from api.schemas.node_group import NodeGroupDocument
from planner.cluster import Cluster, GroupLink
from planner.cluster_presets import cluster_from_preset

CUSTOM = "custom"
"""The name of a cluster that no preset has."""


class GroupLinkDocument(InputDocument):
    """The link between two node groups."""

    groups: tuple[Name, Name]
    bandwidth_bytes_per_second: Quantity = Field(description="Per device and direction.")
    latency_seconds: Latency

    @classmethod
    def from_link(cls, link: GroupLink) -> Self:
        """Return the document of a link."""
        return cls(
            groups=link.groups,
            bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
            latency_seconds=link.latency_seconds,
        )

    def to_link(self) -> GroupLink:
        """Return the link that the document says."""
        return GroupLink(
            groups=self.groups,
            bandwidth_bytes_per_second=self.bandwidth_bytes_per_second,
            latency_seconds=self.latency_seconds,
        )


class ClusterDocument(InputDocument):
    """A system by name and number of devices, or node groups and what joins them."""

    preset: Name | None = None
    num_devices: DeviceCount | None = None
    node_groups: Annotated[tuple[NodeGroupDocument, ...], Field(min_length=1)] | None = None
    between_groups: tuple[GroupLinkDocument, ...] = Field(default=(), json_schema_extra=EXPERIMENTAL)

    @model_validator(mode="before")
    @classmethod
    def _is_more_than_a_name(cls, value: object) -> object:
        """Refuse a name alone, or one with devices as the command line has it, with the object it means."""
        return refuse_text(value, meant=_named)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        """Refuse both forms at once, and none."""
        if (self.preset is None) == (self.node_groups is None):
            raise PydanticCustomError("cluster_form", "should have either a preset or node_groups")
        if self.preset is not None and self.num_devices is None:
            raise PydanticCustomError("cluster_form", "is missing", {"field": "num_devices"})
        if self.node_groups is not None and self.num_devices is not None:
            raise PydanticCustomError(
                "cluster_form", "is for a preset; node_groups say their own", {"field": "num_devices"}
            )
        return self

    @model_validator(mode="after")
    def _groups_are_named(self) -> Self:
        """Refuse two node groups of one name, and links between groups that are not there."""
        names = [group.name for group in self.node_groups or ()]
        if len(set(names)) < len(names):
            raise PydanticCustomError(
                "node_groups", "should have names of their own", {"field": "node_groups"}
            )
        for link in self.between_groups:
            if not set(link.groups) <= set(names) or len(set(link.groups)) == 1:
                raise PydanticCustomError(
                    "between_groups",
                    "should join two of the node groups: {names}",
                    {"names": ", ".join(names), "field": "between_groups"},
                )
        joined = [frozenset(link.groups) for link in self.between_groups]
        if len(set(joined)) < len(joined):
            raise PydanticCustomError(
                "between_groups", "should join two node groups once", {"field": "between_groups"}
            )
        return self

    @classmethod
    def from_cluster(cls, cluster: Cluster) -> Self:
        """Return the document of a cluster, by its node groups."""
        return cls(
            node_groups=tuple(map(NodeGroupDocument.from_group, cluster.node_groups)),
            between_groups=tuple(map(GroupLinkDocument.from_link, cluster.between_groups)),
        )

    def to_cluster(self) -> Cluster:
        """Return the cluster that the document says; InvalidRequest for names that nothing has."""
        if self.preset is not None and self.num_devices is not None:
            return cluster_from_preset(self.preset, self.num_devices)
        return Cluster(
            name=CUSTOM,
            node_groups=tuple(
                group.to_group(pointer=f"/cluster/node_groups/{position}")
                for position, group in enumerate(self.node_groups or ())
            ),
            between_groups=tuple(link.to_link() for link in self.between_groups),
        )


def _named(text: str) -> list[dict[str, object]]:
    """Return a system with its number of devices: ``h100-sxm:64``."""
    name, _, devices = text.partition(":")
    return [{"preset": name, "num_devices": int(devices)}] if re.fullmatch(r"[0-9]{1,8}", devices) else []
