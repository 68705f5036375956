"""How replicas are kept equal: those of experts, and those of everything else."""

from dataclasses import dataclass, replace
from math import gcd

from planner.cost.data_parallel import GroupClock, ReplicaCosts
from planner.cost.geometry import expert_replica_stride, replica_stride
from planner.cost.mesh_links import MeshLinks
from planner.cost.tally import CONTENTION_FRACTION
from planner.framework import Framework, StateWidths
from planner.strategy import Mesh, Sharding


@dataclass(frozen=True, kw_only=True, slots=True)
class Replicas:
    """How replicas of experts, and of everything else, are kept equal; equal ``key``s cost the same."""

    dense: ReplicaCosts
    experts: ReplicaCosts
    key: tuple[int, ...]


def expert_sharding(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Return the shard groups of experts where the plan says nothing: as large a share of their replicas.

    What is spread over all replicas of the rest is spread over all replicas of an expert, what over none
    over none, and anything else over as many as their number allows.
    """

    def group(size: int) -> int:
        return mesh.expert_replicas if size == mesh.replicas else gcd(size, mesh.expert_replicas)

    return replace(
        sharding,
        parameters=group(sharding.parameters),
        gradients=group(sharding.gradients),
        optimizer=group(sharding.optimizer),
    )


def replicas_of(
    links: MeshLinks,
    sharding: Sharding,
    *,
    framework: Framework,
    widths: StateWidths,
    contention_fraction: float = CONTENTION_FRACTION,
) -> Replicas:
    """Return how the replicas of a mesh are kept equal under a sharding."""
    mesh = links.mesh

    def costs(clock: GroupClock, replicas: int, own: Sharding) -> ReplicaCosts:
        return ReplicaCosts(
            clock=clock,
            replicas=replicas,
            sharding=own,
            widths=widths,
            buckets=framework.keeps_master_weights,
            pace=framework.pace.data_parallel,
            contention_fraction=contention_fraction,
        )

    dense = costs(links.between_replicas, mesh.replicas, sharding)
    if mesh.expert_replicas == mesh.replicas and sharding.experts is None:
        return Replicas(dense=dense, experts=dense, key=_sharding_key(mesh, sharding))
    shared = sharding.experts or expert_sharding(sharding, mesh)
    experts = costs(links.between_expert_replicas, mesh.expert_replicas, shared)
    key = (*_sharding_key(mesh, sharding), *_expert_key(mesh, shared))
    return Replicas(dense=dense, experts=experts, key=key)


def _sharding_key(mesh: Mesh, sharding: Sharding) -> tuple[int, ...]:
    return (mesh.replicas, replica_stride(mesh), *_groups(sharding))


def _expert_key(mesh: Mesh, sharding: Sharding) -> tuple[int, ...]:
    return (mesh.expert_replicas, expert_replica_stride(mesh), *_groups(sharding))


def _groups(sharding: Sharding) -> tuple[int, ...]:
    return (
        sharding.zero_stage,
        sharding.parameters,
        sharding.gradients,
        sharding.optimizer,
        sharding.reshard_after_forward,
    )
