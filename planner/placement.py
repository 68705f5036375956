"""Where the stages of a plan sit: on which node group, and on which of its devices."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from planner.cluster import Cluster
from planner.cost.geometry import stage_devices
from planner.errors import InvalidRequest, UnknownName
from planner.strategy import DeviceRange, Mesh, StagePlacement, TrainingPlan, Violation

NodeGroups = tuple[str, ...]
"""The name of the node group of each stage; empty where the stages have no place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageGroups:
    """The node group of each stage, and what is wrong with them."""

    node_groups: NodeGroups
    violations: tuple[Violation, ...] = ()


def groups_in_order(mesh: Mesh, cluster: Cluster) -> StageGroups:
    """Return stages on the node groups in the order of the cluster, as many on each as its devices hold.

    A stage lies on one group as a whole. On a cluster of one group all stages are there; more ranks than
    there are devices have no place, which another rule says.
    """
    if len(cluster.node_groups) == 1:
        return StageGroups(node_groups=cluster.group_names * mesh.pipeline_parallel)
    if mesh.world_size > cluster.num_devices:
        return StageGroups(node_groups=())
    room = _room(mesh, cluster)
    places = chain.from_iterable(repeat(name, count) for name, count in room.items())
    if sum(room.values()) >= mesh.pipeline_parallel:
        return StageGroups(node_groups=tuple(next(places) for _ in range(mesh.pipeline_parallel)))
    held = ", ".join(f"{name} holds {count}" for name, count in room.items())
    violation = Violation(
        pointer="/plan/data_parallel",
        rule=f"{mesh.pipeline_parallel} stages of {_stage_ranks(mesh)} devices each, on one node group as a "
        f"whole, do not fit: {held}",
        nearest_legal=tuple(filter(None, (_most_replicas(mesh, cluster),))),
    )
    return StageGroups(node_groups=(), violations=(violation,))


def named_group(cluster: Cluster, name: str | None, *, pointer: str) -> Cluster:
    """Return the node group of a name as a cluster of its own, the whole cluster where none is named.

    Raises UnknownName for a name that no group has.
    """
    if name is None:
        return cluster
    if name not in cluster.group_names:
        raise UnknownName(f"no node group {name!r}", pointer=pointer, nearest_legal=cluster.group_names)
    return cluster.only(name)


def largest_data_parallel(mesh: Mesh, cluster: Cluster) -> int:
    """Return the most replicas that the devices hold beside the other degrees of a mesh, at least 1."""
    if len(cluster.node_groups) == 1:
        return max(cluster.num_devices // max(replace(mesh, data_parallel=1).world_size, 1), 1)
    return max(_most_replicas(mesh, cluster), 1)


def stage_placements(mesh: Mesh, node_groups: Sequence[str]) -> tuple[StagePlacement, ...]:
    """Return the devices of every stage: a group's stages fill it in rank order from its first device on."""
    parts = {name: replace(mesh, pipeline_parallel=count) for name, count in Counter(node_groups).items()}
    placed: Counter[str] = Counter()
    placements = []
    for name in node_groups:
        placements.append(_placement(name, parts[name], placed[name]))
        placed[name] += 1
    return tuple(placements)


def _placement(name: str, here: Mesh, number: int) -> StagePlacement:
    """Return the devices of one of the stages that sit on a group, by its number among them."""
    return StagePlacement(
        node_group=name,
        devices=tuple(
            DeviceRange(first=first, count=count, stride=stride)
            for first, count, stride in stage_devices(here, number)
        ),
        data_parallel=here.data_parallel,
        tensor_parallel=here.tensor_parallel,
        context_parallel=here.context_parallel,
    )


def placed_groups(plan: TrainingPlan, cluster: Cluster) -> StageGroups:
    """Return the node groups that a full plan names; a plan that names none takes them in order.

    Raises UnknownName for a group that the cluster lacks and InvalidRequest for placements that cannot be
    priced yet: a stage in several parts, or with degrees of its own.
    """
    if not any(stage.placement for stage in plan.stages):
        return groups_in_order(plan.mesh, cluster)
    names = tuple(_group_of(plan, number, cluster) for number, _ in enumerate(plan.stages))
    if plan.mesh.world_size > cluster.num_devices:
        return StageGroups(node_groups=())
    violations = (*_crowded(plan.mesh, names, cluster), *_elsewhere(plan, names))
    return StageGroups(node_groups=() if violations else names, violations=violations)


def _stage_ranks(mesh: Mesh) -> int:
    return max(replace(mesh, pipeline_parallel=1).world_size, 1)


def _room(mesh: Mesh, cluster: Cluster) -> dict[str, int]:
    """Return how many stages each node group holds."""
    return {group.name: group.num_devices // _stage_ranks(mesh) for group in cluster.node_groups}


def _most_replicas(mesh: Mesh, cluster: Cluster) -> int:
    """Return the largest data-parallel degree with which all stages find a node group, 0 where none does."""
    single = replace(mesh, data_parallel=1)
    largest = max(_room(replace(single, pipeline_parallel=1), cluster).values())

    def left_over(degree: int) -> int:
        """Return the stages that find no group; the larger the degree, the more."""
        room = _room(replace(mesh, data_parallel=degree), cluster)
        return mesh.pipeline_parallel - sum(room.values())

    return bisect_right(range(1, largest + 1), 0, key=left_over)


def _group_of(plan: TrainingPlan, number: int, cluster: Cluster) -> str:
    pointer, placement = f"/plan/stages/{number}/placement", plan.stages[number].placement
    if len(placement) != 1:
        raise InvalidRequest(
            f"stage {number} lies in {len(placement)} places: only one, on one node group, can be priced yet",
            pointer=pointer,
        )
    (place,) = placement
    named_group(cluster, place.node_group, pointer=f"{pointer}/0/node_group")
    for word in ("data_parallel", "tensor_parallel", "context_parallel"):
        if getattr(place, word) != getattr(plan.mesh, word):
            raise InvalidRequest(
                f"a stage with a {word} of its own ({getattr(place, word)}) cannot be priced yet",
                pointer=f"{pointer}/0/{word}",
                nearest_legal=(getattr(plan.mesh, word),),
            )
    return place.node_group


def _crowded(mesh: Mesh, names: NodeGroups, cluster: Cluster) -> Iterator[Violation]:
    """Check that every group holds the stages that are put on it."""
    room = _room(mesh, cluster)
    for name, count in Counter(names).items():
        if count > room[name]:
            yield Violation(
                pointer="/plan/stages",
                rule=f"{count} stages of {_stage_ranks(mesh)} devices each are put on {name}, which has "
                f"{cluster.group(name).num_devices} devices",
            )


def _elsewhere(plan: TrainingPlan, names: NodeGroups) -> Iterator[Violation]:
    """Check that the devices of a stage are those that the rank order gives it on its group."""
    for number, usual in enumerate(stage_placements(plan.mesh, names)):
        (place,) = plan.stages[number].placement
        if not _are_same(place.devices, usual.devices):
            yield Violation(
                pointer=f"/plan/stages/{number}/placement/0/devices",
                rule=f"stages fill {place.node_group} in rank order from its first device on",
                nearest_legal=tuple(
                    {"first": run.first, "count": run.count, "stride": run.stride} for run in usual.devices
                ),
            )


def _are_same(given: Sequence[DeviceRange], ordered: Sequence[DeviceRange]) -> bool:
    """Whether runs hold the same devices, however they are cut."""
    if tuple(given) == tuple(ordered):
        return True
    if sum(run.count for run in given) != sum(run.count for run in ordered):
        return False
    return _devices(given) == _devices(ordered)


def _devices(runs: Sequence[DeviceRange]) -> set[int]:
    return {run.first + position * run.stride for run in runs for position in range(run.count)}
