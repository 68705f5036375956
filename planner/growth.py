"""The same machines, more of them: what to change in a request so that a plan fits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.cluster import Cluster, NodeGroup
from planner.cluster_presets import MAX_DEVICES, cluster_from_preset, cluster_preset_names


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """A larger cluster, and the fields of the request that say it: JSON pointer to new value."""

    cluster: Cluster
    change: Mapping[str, object]


def grown_cluster(cluster: Cluster, factor: int, *, group: str) -> Growth | None:
    """Return a cluster with ``factor`` times the nodes: all of a preset, else those of one node group.

    None where no link joins more of them, or no preset has as many.
    """
    preset = cluster.name.split(":")[0]
    if preset in cluster_preset_names():
        num_devices = cluster.num_devices * factor
        if num_devices > MAX_DEVICES:
            return None
        return Growth(
            cluster=cluster_from_preset(preset, num_devices), change={"/cluster/num_devices": num_devices}
        )
    number = cluster.group_names.index(group)
    small = cluster.node_groups[number]
    large = _grown_group(small, factor)
    if large is None:
        return None
    groups = (*cluster.node_groups[:number], large, *cluster.node_groups[number + 1 :])
    return Growth(
        cluster=replace(cluster, node_groups=groups),
        change=_changes(small, large, pointer=f"/cluster/node_groups/{number}"),
    )


def _grown_group(group: NodeGroup, factor: int) -> NodeGroup | None:
    if len(group.levels) < 2:  # noqa: PLR2004 - a second level joins nodes
        return None
    num_nodes, outermost = group.num_nodes * factor, group.levels[-1]
    devices = max(outermost.devices, num_nodes * group.devices_per_node)
    return replace(
        group, num_nodes=num_nodes, levels=(*group.levels[:-1], replace(outermost, devices=devices))
    )


def _changes(small: NodeGroup, large: NodeGroup, *, pointer: str) -> dict[str, object]:
    change: dict[str, object] = {f"{pointer}/num_nodes": large.num_nodes}
    if large.levels != small.levels:
        change[f"{pointer}/levels/{len(large.levels) - 1}/devices"] = large.levels[-1].devices
    return change
