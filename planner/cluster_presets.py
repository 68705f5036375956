"""Well-known systems as clusters, with the number of devices free."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from math import ceil, lcm
from typing import Any, Final

from planner.cluster import Cluster, GroupLink, Host, Level, NodeGroup, Nvme, Topology
from planner.devices import device_by_name
from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names

PACKAGE: Final = "planner.clusters"
NUM_DEVICES: Final = "/cluster/num_devices"
MOST_SPREAD: Final = 2
"""How many times the domains that devices need they may be dealt out over."""
ROUNDING: Final = 1e-9
MAX_DEVICES: Final = 2**20
"""A million devices: ten times the largest cluster built so far."""


@cache
def cluster_preset_names() -> tuple[str, ...]:
    """Return the names of all clusters with a free number of devices, sorted."""
    files = resources.files(PACKAGE).iterdir()
    return tuple(sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json")))


@cache
def system_names() -> tuple[str, ...]:
    """Return the names of the clusters that have one kind of node, sorted."""
    return tuple(name for name in cluster_preset_names() if len(systems_of(name)) == 1)


def systems_of(name: str) -> tuple[str, ...]:
    """Return the systems that a cluster joins, itself where it has one kind of node.

    Raises UnknownName for an unknown cluster.
    """
    return tuple(cluster_preset_document(name).get("groups", (name,)))


def smallest_whole(name: str) -> int:
    """Return how many devices one node of each kind has, with equally many devices of each kind.

    Raises UnknownName for an unknown cluster.
    """
    sizes = [cluster_preset_document(system)["devices_per_node"] for system in systems_of(name)]
    return lcm(*sizes) * len(sizes)


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

    A cluster that joins several systems has equally many devices of each.

    Raises UnknownName for an unknown system and InvalidRequest for a number that neither fits in
    one node nor fills whole ones, or whose nodes cannot be spread evenly over racks.
    """
    systems = systems_of(name)
    if len(systems) == 1:
        groups = [_group_of_system(name, num_devices)]
    else:
        groups = [_group_of_part(system, num_devices, parts=len(systems)) for system in systems]
    links = cluster_preset_document(name).get("between_groups", ())
    return Cluster(
        name=f"{name}:{num_devices}",
        node_groups=tuple(groups),
        between_groups=tuple(GroupLink(**{**link, "groups": tuple(link["groups"])}) for link in links),
    )


def _group_of_system(name: str, num_devices: int) -> NodeGroup:
    document = cluster_preset_document(name)
    per_node = document["devices_per_node"]
    _check_num_devices(num_devices, per_node=per_node)
    return _node_group(document, num_devices=num_devices, devices_per_node=min(per_node, num_devices))


def _group_of_part(system: str, num_devices: int, *, parts: int) -> NodeGroup:
    """Return the part of a joined cluster that is of one system."""
    if num_devices % parts:
        below = num_devices // parts * parts
        raise InvalidRequest(
            f"num_devices ({num_devices}) must be a multiple of {parts}: as many of each system",
            pointer=NUM_DEVICES,
            nearest_legal=tuple(number for number in (below, below + parts) if number),
        )
    try:
        return _group_of_system(system, num_devices // parts)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"of {system}, one of {parts} systems: {error.message}",
            pointer=NUM_DEVICES,
            nearest_legal=tuple(parts * int(str(number)) for number in error.nearest_legal),
        ) from error


def _check_num_devices(num_devices: int, *, per_node: int) -> None:
    if not 1 <= num_devices <= MAX_DEVICES:
        nearest = (1,) if num_devices < 1 else (MAX_DEVICES,)
        raise InvalidRequest(
            f"num_devices ({num_devices}) must lie between 1 and {MAX_DEVICES}",
            pointer=NUM_DEVICES,
            nearest_legal=nearest,
        )
    if num_devices > per_node and num_devices % per_node:
        below = num_devices // per_node * per_node
        raise InvalidRequest(
            f"num_devices ({num_devices}) must be at most {per_node} or a multiple of it",
            pointer=NUM_DEVICES,
            nearest_legal=(below, below + per_node),
        )


def _node_group(document: Mapping[str, Any], *, num_devices: int, devices_per_node: int) -> NodeGroup:
    return NodeGroup(
        name=document["name"],
        num_nodes=max(1, num_devices // document["devices_per_node"]),
        devices_per_node=devices_per_node,
        device=device_by_name(document["device"]),
        levels=tuple(_levels(document["levels"], num_devices=num_devices, per_node=devices_per_node)),
        host=Host(**document["host"]) if document.get("host") else None,
        nvme=Nvme(**document["nvme"]) if document.get("nvme") else None,
    )


def _levels(levels: Sequence[Mapping[str, Any]], *, num_devices: int, per_node: int) -> Iterator[Level]:
    """Yield the levels, innermost first, until one joins all devices."""
    for level in levels:
        devices = _domain_devices(level, num_devices=num_devices, per_node=per_node)
        yield _level(level, devices=devices)
        if devices >= num_devices:
            return


def _domain_devices(level: Mapping[str, Any], *, num_devices: int, per_node: int) -> int:
    """Return how many devices share a domain of a level; one without a size spans the whole group.

    Domains of several nodes (racks, slices) hold equally many nodes each. InvalidRequest where the
    nodes cannot be dealt out evenly over hardly more domains than they need.
    """
    most = level["devices"] or num_devices
    if most >= num_devices or most <= per_node:
        return int(min(most, num_devices))
    even = _even_domain(num_devices, most=most, per_node=per_node)
    if even is None:
        steps = range(per_node, most, per_node)
        nearest = [
            next(
                number
                for step in steps
                for number in [num_devices + sign * step]
                if _even_domain(number, most=most, per_node=per_node)
            )
            for sign in (-1, 1)
        ]
        raise InvalidRequest(
            f"num_devices ({num_devices}) cannot be spread evenly over domains of {most} ({level['name']})",
            pointer=NUM_DEVICES,
            nearest_legal=tuple(nearest),
        )
    return even


def _even_domain(num_devices: int, *, most: int, per_node: int) -> int | None:
    """Return the largest domain of whole nodes that divides the devices, None where it is a small one."""
    fewest = ceil(num_devices / most)
    for domains in range(fewest, MOST_SPREAD * fewest + 1):
        if num_devices % (domains * per_node) == 0:
            return num_devices // domains
    return None


def _level(level: Mapping[str, Any], *, devices: int) -> Level:
    dimensions = level.get("dimensions")
    topology = Topology(level.get("topology", Topology.SWITCH))
    bandwidth = level["bandwidth_bytes_per_second"]
    if topology is Topology.MESH and devices > 1:
        # Links to devices that are not used carry nothing.
        bandwidth *= (devices - 1) / (level["devices"] - 1)
    return Level(
        name=level["name"],
        devices=devices,
        bandwidth_bytes_per_second=bandwidth,
        latency_seconds=level["latency_seconds"],
        in_network_reduction=level.get("in_network_reduction", False),
        oversubscription=level.get("oversubscription", 1.0),
        devices_per_link=level.get("devices_per_link", 1),
        topology=topology,
        shape=balanced_extents(devices, dimensions) if dimensions else None,
    )


def balanced_extents(devices: int, dimensions: int) -> tuple[int, ...]:
    """Return the most even extents of so many dimensions that hold the devices: 32 in three is 2 x 4 x 4."""
    if dimensions == 1:
        return (devices,)
    root = int(devices ** (1 / dimensions) + ROUNDING)
    smallest = max(extent for extent in range(1, root + 1) if devices % extent == 0)
    return (smallest, *balanced_extents(devices // smallest, dimensions - 1))
