"""Well-known systems as clusters, with the number of devices free."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from planner.cluster import Cluster, Host, Level, NodeGroup, Nvme, Topology
from planner.devices import device_by_name
from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names

PACKAGE: Final = "planner.clusters"
MAX_DEVICES: Final = 2**20
"""A million devices: ten times the largest cluster built so far."""


@cache
def cluster_preset_names() -> tuple[str, ...]:
    """Return the names of all systems, sorted."""
    files = resources.files(PACKAGE).iterdir()
    return tuple(sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json")))


def cluster_preset_document(name: str) -> Mapping[str, Any]:
    """Return a system as its file says it, with its sources; UnknownName gives the nearest names."""
    if name not in cluster_preset_names():
        nearest = nearest_names(name, cluster_preset_names())
        raise UnknownName(
            f"no cluster {name!r}; nearest: {', '.join(nearest)}",
            pointer="/cluster/preset",
            nearest_legal=nearest,
        )
    document: Mapping[str, Any] = json.loads((resources.files(PACKAGE) / f"{name}.json").read_text("utf-8"))
    return document


def cluster_from_preset(name: str, num_devices: int) -> Cluster:
    """Return ``num_devices`` devices of a system: a part of one node, or whole nodes.

    Raises UnknownName for an unknown system and InvalidRequest for a number that neither fits in
    one node nor fills whole ones.
    """
    document = cluster_preset_document(name)
    per_node = document["devices_per_node"]
    _check_num_devices(num_devices, per_node=per_node)
    group = _node_group(document, num_devices=num_devices, devices_per_node=min(per_node, num_devices))
    return Cluster(name=f"{name}:{num_devices}", node_groups=(group,))


def _check_num_devices(num_devices: int, *, per_node: int) -> None:
    pointer = "/cluster/num_devices"
    if not 1 <= num_devices <= MAX_DEVICES:
        nearest = (1,) if num_devices < 1 else (MAX_DEVICES,)
        raise InvalidRequest(
            f"num_devices ({num_devices}) must lie between 1 and {MAX_DEVICES}",
            pointer=pointer,
            nearest_legal=nearest,
        )
    if num_devices > per_node and num_devices % per_node:
        below = num_devices // per_node * per_node
        raise InvalidRequest(
            f"num_devices ({num_devices}) must be at most {per_node} or a multiple of it",
            pointer=pointer,
            nearest_legal=(below, below + per_node),
        )


def _node_group(document: Mapping[str, Any], *, num_devices: int, devices_per_node: int) -> NodeGroup:
    levels = [_level(level, num_devices=num_devices) for level in document["levels"]]
    if num_devices <= document["devices_per_node"]:
        levels = [level for level in levels if level.devices <= num_devices][:1] or levels[:1]
    return NodeGroup(
        name=document["name"],
        num_nodes=max(1, num_devices // document["devices_per_node"]),
        devices_per_node=devices_per_node,
        device=device_by_name(document["device"]),
        levels=tuple(levels),
        host=Host(**document["host"]) if document.get("host") else None,
        nvme=Nvme(**document["nvme"]) if document.get("nvme") else None,
    )


def _level(level: Mapping[str, Any], *, num_devices: int) -> Level:
    """Return one level; a level without a size spans the whole group."""
    devices = min(level["devices"] or num_devices, num_devices)
    topology = Topology(level.get("topology", Topology.SWITCH))
    return Level(**{**level, "devices": devices, "topology": topology})
