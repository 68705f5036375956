"""What meshes take at least with each of their batches: the bounds that a search begins with.

Meshes whose layers are cut alike are timed together, and only for micro-batches that may fit the memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.any_scheme import AnyScheme
from planner.cost.floors import Floors, Modes
from planner.cost.ground import cut_key
from planner.cost.least_memory import LeastMemory
from planner.cost.model import CostModel
from planner.cost.scheme_floors import SchemeFloors
from planner.search.meshes import BatchedMesh
from planner.search.offloading import Chain
from planner.strategy import Batch, Mesh, Sharding

Whole = NDArray[np.int64]
SHARED: Final = "mesh floors"
PER_BATCH: Final = ("places", "micro_batches")


@dataclass(frozen=True, slots=True)
class FamilyNode:
    """Meshes whose layers are cut alike, and a step time that no plan on any of them undercuts."""

    bound_ns: int
    family: Sequence[BatchedMesh]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshFloor:
    """A mesh and step times that no plan with each of its batches and chains undercuts, quickest last.

    ``ways`` are the mesh with every way to split attention, none where there is but one.
    """

    mesh: Mesh
    ways: tuple[Mesh, ...]
    variants: list[tuple[int, Batch, Chain]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeldMesh:
    """A mesh with those of its batches that may fit the memory, and by which chain: [chain, batch].

    ``places`` are those of the micro-batch sizes among all of interest.
    """

    batched: BatchedMesh
    batches: tuple[Batch, ...]
    places: NDArray[np.intp]
    micro_batches: Whole
    fits: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeshNode:
    """A mesh, and a step time that no plan on it undercuts; its family is timed for so many sizes."""

    bound_ns: int
    held: HeldMesh
    num_sizes: int


def floors_of(meshes: Sequence[BatchedMesh], model: CostModel) -> "MeshFloors":
    """Return what times the meshes of a space: what an earlier search over the same costs left, if it may."""
    known = model.shared.get(SHARED)
    if isinstance(known, MeshFloors) and known.covers(sizes_of(meshes)):
        return known
    made = model.shared[SHARED] = MeshFloors(meshes, model)
    return made


class MeshFloors:
    """Times the meshes of a space, family by family."""

    def __init__(self, meshes: Sequence[BatchedMesh], model: CostModel) -> None:
        """Take the meshes of a space, whose micro-batch sizes are those of interest."""
        self._sizes = np.array(sorted(sizes_of(meshes)), dtype=np.int64)
        self._floors = Floors(model=model, sizes=self._sizes.tolist())
        self.any_scheme = AnyScheme(model=model)
        self._schemes = SchemeFloors(bounds=self.any_scheme, costs=self._floors.costs)
        self.memory = LeastMemory(model=model, floors=self._floors)

    def covers(self, sizes: Iterable[int]) -> bool:
        """Whether some micro-batch sizes are among those of interest."""
        return set(sizes) <= set(self._sizes.tolist())

    def families(self, meshes: Sequence[BatchedMesh]) -> list[FamilyNode]:
        """Return meshes by families, those with the lowest bounds first."""
        families: dict[tuple[int, ...], list[BatchedMesh]] = {}
        for batched in meshes:
            families.setdefault(cut_key(batched.mesh, 1), []).append(batched)
        found = [FamilyNode(self._least_ns(family), family) for family in families.values()]
        return sorted(found, key=lambda node: node.bound_ns)

    def _least_ns(self, family: Sequence[BatchedMesh]) -> int:
        """Return a step time that no plan on the meshes of a family undercuts."""
        shares = max(batched.mesh.data_parallel * batched.mesh.pipeline_parallel for batched in family)
        return self.work_ns(family[0].ways, shares=shares)

    def work_ns(self, ways: Sequence[Mesh], *, shares: int) -> int:
        """Return a step time that no plan undercuts on a mesh whose replicas' stages are so many."""
        samples = self._floors.model.setting.job.global_batch_size
        left = self._schemes.left(ways, len(self._sizes))
        return int(min(map(self._floors.least_ns_per_sample, left)) * samples / shares)

    def of(self, node: FamilyNode) -> list[MeshNode]:
        """Return a family's meshes, those alone that may fit the memory, by what their layers take."""
        held = [found for found in map(self._held, node.family) if found is not None]
        if not held:
            return []
        count = max(int(own.places.max()) for own in held) + 1
        places, micro_batches = (np.concatenate([getattr(own, name) for own in held]) for name in PER_BATCH)
        sizes = [len(own.batches) for own in held]
        stages = np.repeat([own.batched.mesh.pipeline_parallel for own in held], sizes)
        each = [
            self._floors.least_step_ns(way, places, micro_batches, stages, count=count)
            for way in self._schemes.left(held[0].batched.ways, count)
        ]
        starts = np.cumsum([0, *sizes[:-1]])
        bounds = np.minimum.reduceat(np.min(each, axis=0), starts).tolist()
        return [
            MeshNode(bound_ns=int(bound), held=own, num_sizes=count)
            for own, bound in zip(held, bounds, strict=True)
        ]

    def _held(self, batched: BatchedMesh) -> HeldMesh | None:
        """Return a mesh with the batches that may fit, None where none does."""
        # The last way of a chain leaves most room.
        last = [chain[-1] for chain in batched.chains]
        if not self.memory.may_hold_states(batched.mesh, {(way.sharding, way.on_host): None for way in last}):
            return None
        sizes = np.array([batch.micro_batch_size for batch in batched.batches], dtype=np.int64)
        micro_batches = np.array([batch.num_micro_batches for batch in batched.batches], dtype=np.int64)
        ways = [(way.sharding, way.on_host, way.ways) for way in last]
        fits = self.memory.holds(batched.mesh, ways, sizes, micro_batches)
        left = np.flatnonzero(fits.any(axis=0))
        if not len(left):
            return None
        return HeldMesh(
            batched=batched,
            batches=tuple(batched.batches[number] for number in left.tolist()),
            places=np.searchsorted(self._sizes, sizes[left]),
            micro_batches=micro_batches[left],
            fits=fits[:, left],
        )

    def floor(self, node: MeshNode) -> MeshFloor:
        """Return the floors of a mesh: of every batch and chain that may fit."""
        held, count = node.held, node.num_sizes
        ways, batch = held.batched.ways, (held.places, held.micro_batches)
        left = self._schemes.left(ways, count)
        known: dict[tuple[Sharding, Modes], list[float]] = {}
        found: list[tuple[int, Batch, Chain]] = []
        for chain, fits in zip(held.batched.chains, held.fits.tolist(), strict=True):
            # Nothing on the host makes a plan quicker.
            key = (chain[0].sharding, tuple(dict.fromkeys(chain[0].recompute)))
            if any(fits) and key not in known:
                each = [self._floors.step_ns(mesh, *key, *batch, count=count) for mesh in left]
                known[key] = np.min(each, axis=0).tolist()
            steps = zip(fits, known.get(key, ()), held.batches, strict=False)
            found += [(int(step), own, chain) for fit, step, own in steps if fit]
        found.sort(key=lambda variant: variant[0], reverse=True)
        return MeshFloor(mesh=ways[0], ways=ways if len(ways) > 1 else (), variants=found)


def sizes_of(meshes: Sequence[BatchedMesh]) -> set[int]:
    """Return the micro-batch sizes of all batches."""
    return {batch.micro_batch_size for batched in meshes for batch in batched.batches}
