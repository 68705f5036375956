"""Clusters of several node groups, and requests on them."""

from dataclasses import replace

from planner.cluster import Cluster, GroupLink, NodeGroup
from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints
from planner.legality import Setting
from planner.planning import PlanRequest
from planner.profile import builtin_profile
from tests.unit.planner.settings import request_of, setting

LINK_BANDWIDTH = 25e9
LINK_LATENCY = 5e-6


def a_group(preset: str, num_devices: int, *, name: str | None = None) -> NodeGroup:
    """Return the node group of a preset, under a name of its own."""
    (group,) = cluster_from_preset(preset, num_devices).node_groups
    return replace(group, name=name or preset)


def joined(*groups: NodeGroup, bandwidth: float = LINK_BANDWIDTH) -> Cluster:
    """Return node groups that are joined pair by pair."""
    links = tuple(
        GroupLink(
            groups=(one.name, other.name),
            bandwidth_bytes_per_second=bandwidth,
            latency_seconds=LINK_LATENCY,
        )
        for number, one in enumerate(groups)
        for other in groups[number + 1 :]
    )
    return Cluster(name="custom", node_groups=groups, between_groups=links)


def generations(num_devices: int = 16) -> Cluster:
    """Return as many A100 as H100, ``num_devices`` of each."""
    return joined(a_group("a100-sxm-80gb", num_devices), a_group("h100-sxm", num_devices))


def setting_on(cluster: Cluster, *, model: str = "gpt-2-355m", framework: str = "megatron-core") -> Setting:
    """Return a small job on a cluster."""
    usual = setting(model=model, framework=framework, global_batch_size=32, sequence_length=1024)
    return replace(usual, cluster=cluster)


def request_on(
    cluster: Cluster,
    *,
    model: str = "gpt-2-355m",
    framework: str = "megatron-core",
    constraints: Constraints | None = None,
) -> PlanRequest:
    """Return a small request on a cluster, with the measurements of both generations."""
    usual = request_of(setting(global_batch_size=32, sequence_length=1024), constraints=constraints)
    given = setting_on(cluster, model=model, framework=framework)
    return replace(
        usual,
        workload=given.workload,
        cluster=cluster,
        job=given.job,
        profiles=(builtin_profile("a100-sxm-80gb/published"), builtin_profile("h100-sxm/published")),
    )
