"""How replicas are kept equal: those of experts, and those of everything else."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from planner.cost.data_parallel import GroupClock, MemoryClock, ReplicaCosts
from planner.cost.geometry import Axes, expert_replica_axes, replica_axes
from planner.cost.mesh_links import MeshLinks
from planner.cost.tally import CONTENTION_FRACTION
from planner.cost.wire import wire_of
from planner.framework import Framework, StateWidths
from planner.job import Precision
from planner.strategy import Mesh, Sharding


@dataclass(frozen=True, kw_only=True, slots=True)
class Replicas:
    """How replicas of experts, and of everything else, are kept equal; equal ``key``s cost the same."""

    dense: ReplicaCosts
    experts: ReplicaCosts
    key: tuple[object, ...]

    def or_any(self, others: Sequence["Replicas"]) -> "Replicas":
        """Return replicas whose traffic takes what it takes in the quickest of several ways."""
        return Replicas(
            dense=replace(self.dense, others=tuple(other.dense for other in others)),
            experts=replace(self.experts, others=tuple(other.experts for other in others)),
            key=(self.key, *(other.key for other in others)),
        )

    @property
    def at_ends(self) -> "Replicas":
        """How replicas of embeddings and heads are kept equal."""
        wire = self.dense.wire.at_ends
        if wire is self.dense.wire:
            return self
        others = tuple(replace(other, wire=other.wire.at_ends) for other in self.dense.others)
        return replace(self, dense=replace(self.dense, wire=wire, others=others))


def expert_sharding(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Return the shard groups of experts where the plan says nothing: those of the same ranks.

    A group of the rest holds as large a share of an expert's replicas as it is of all; where that is no
    whole number, or none that divides them, as many as come out even.
    """

    def group(size: int) -> int:
        return gcd(max(size * mesh.expert_replicas // mesh.replicas, 1), mesh.expert_replicas)

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
    precision: Precision = Precision.BF16,
    moves: MemoryClock | None = None,
    contention_fraction: float = CONTENTION_FRACTION,
    others: Sequence[tuple[MeshLinks, Sharding]] = (),
) -> Replicas:
    """Return how the replicas of a mesh are kept equal under a sharding.

    ``others`` are further ways to number the same ranks and to share the same states, in groups no larger:
    what comes out takes no longer, and holds no more, than any of them. ``moves`` times what converting to
    the formats of a sharding reads and writes.
    """
    mesh = links.mesh
    wire = wire_of(framework, sharding, widths, precision)
    own_widths = widths.accumulating(wire.reduces)

    def costs(clock: GroupClock, replicas: int, own: Sharding, axes: Axes) -> ReplicaCosts:
        return ReplicaCosts(
            clock=clock,
            replicas=replicas,
            sharding=own,
            widths=own_widths,
            wire=wire,
            moves=moves,
            near=links.collectives.spread(axes).ranks_per_node if wire.exchanges else 1,
            buckets=framework.keeps_master_weights,
            pace=framework.pace.data_parallel,
            contention_fraction=contention_fraction,
            gathers_whole_forward=framework.copies_shards,
        )

    key = replicas_key(mesh, sharding)
    dense = costs(links.between_replicas, mesh.replicas, sharding, replica_axes(mesh))
    if _are_alike(mesh, sharding):
        found = Replicas(dense=dense, experts=dense, key=key)
    else:
        shared = sharding.experts or expert_sharding(sharding, mesh)
        axes = expert_replica_axes(mesh)
        experts = costs(links.between_expert_replicas, mesh.expert_replicas, shared, axes)
        found = Replicas(dense=dense, experts=experts, key=key)
    if not others:
        return found
    ways = [
        replicas_of(
            link,
            own,
            framework=framework,
            widths=widths,
            precision=precision,
            moves=moves,
            contention_fraction=contention_fraction,
        )
        for link, own in others
    ]
    return found.or_any(ways)


def replicas_key(mesh: Mesh, sharding: Sharding) -> tuple[object, ...]:
    """Return what decides how replicas are kept equal: equal keys cost the same."""
    own = (replica_axes(mesh), *_groups(sharding))
    if _are_alike(mesh, sharding):
        return own
    shared = sharding.experts or expert_sharding(sharding, mesh)
    return (*own, expert_replica_axes(mesh), *_groups(shared))


def _are_alike(mesh: Mesh, sharding: Sharding) -> bool:
    """Whether experts have the replicas that all else has."""
    return mesh.expert_replicas == mesh.replicas and sharding.experts is None


def _groups(sharding: Sharding) -> tuple[object, ...]:
    return (
        sharding.zero_stage,
        sharding.parameters,
        sharding.gradients,
        sharding.optimizer,
        sharding.reshard_after_forward,
        sharding.gather_dtype,
        sharding.reduce_dtype,
    )
