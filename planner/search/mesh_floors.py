"""What meshes take at least with each of their batches: the bounds that a search begins with.

Meshes whose layers are cut alike are timed together, and only for micro-batches that may fit the memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cluster import NodeGroup
from planner.cost.floors import Floors, Modes
from planner.cost.ground import cut_key
from planner.cost.least_memory import LeastMemory
from planner.cost.model import CostModel
from planner.search.meshes import BatchedMesh
from planner.strategy import Batch, Mesh, Sharding

Whole = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshFloor:
    """A mesh and step times that no plan with each of its batches undercuts, the quickest last."""

    mesh: Mesh
    batches: list[tuple[int, Batch]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Held:
    """The batches of a mesh whose plans may fit the memory, by the modes that layers choose from."""

    batched: BatchedMesh
    sizes: Whole
    micro_batches: Whole
    fits: Mapping[Modes, NDArray[np.bool_]]

    @property
    def largest(self) -> int:
        """The largest micro-batch that may fit; 0 where none does."""
        return max((int(self.sizes[fits].max(initial=0)) for fits in self.fits.values()), default=0)


class MeshFloors:
    """Times the meshes of a space, family by family."""

    def __init__(self, meshes: Sequence[BatchedMesh], model: CostModel) -> None:
        """Take the meshes of a space."""
        sizes = {batch.micro_batch_size for batched in meshes for batch in batched.batches}
        self._sizes = np.array(sorted(sizes), dtype=np.int64)
        self._floors = Floors(model=model, sizes=self._sizes.tolist())
        self.memory = LeastMemory(model=model, floors=self._floors)
        families: dict[tuple[int, ...], list[BatchedMesh]] = {}
        for batched in meshes:
            families.setdefault(cut_key(batched.mesh, 1), []).append(batched)
        self.families = sorted(families.values(), key=lambda family: _reach(family[0].mesh, model.group))
        """Families of meshes, those whose exchanges inside layers reach least far first."""

    def of(self, family: Sequence[BatchedMesh]) -> Iterator[MeshFloor]:
        """Yield the floors of a family's meshes, of those alone that may fit the memory."""
        held = [self._held(batched) for batched in family]
        largest = max((fits.largest for fits in held), default=0)
        count = int(np.searchsorted(self._sizes, largest, side="right"))
        for fits in held:
            if fits.largest:
                yield self._floor(fits, count)

    def _held(self, batched: BatchedMesh) -> _Held:
        batches = batched.batches
        sizes = np.array([batch.micro_batch_size for batch in batches], dtype=np.int64)
        micro_batches = np.array([batch.num_micro_batches for batch in batches], dtype=np.int64)
        shardings: dict[Modes, list[Sharding]] = {}
        if self.memory.may_hold_states(batched.mesh, batched.shardings):
            for choice in batched.choices:
                shardings.setdefault(choice.recompute, []).append(choice.sharding)
        fits = {
            modes: np.logical_or.reduce(
                [
                    self.memory.holds(batched.mesh, mode, sizes, micro_batches, shardings=some)
                    for mode in modes
                ]
            )
            for modes, some in shardings.items()
        }
        return _Held(batched=batched, sizes=sizes, micro_batches=micro_batches, fits=fits)

    def _floor(self, held: _Held, count: int) -> MeshFloor:
        """Return the floors of a mesh whose family is timed for the first ``count`` sizes."""
        mesh = held.batched.mesh
        bounds = np.full(len(held.sizes), np.inf)
        for modes, fits in held.fits.items():
            if fits.any():
                places = np.searchsorted(self._sizes, held.sizes[fits])
                steps = self._floors.step_ns(mesh, modes, places, held.micro_batches[fits], count=count)
                bounds[fits] = np.minimum(bounds[fits], steps)
        order = [place for place in np.argsort(-bounds, kind="stable") if np.isfinite(bounds[place])]
        batches = [(int(bounds[place]), held.batched.batches[place]) for place in order]
        return MeshFloor(mesh=mesh, batches=batches)


def _reach(mesh: Mesh, group: NodeGroup) -> tuple[bool, int]:
    """Return how far a mesh's exchanges inside layers reach."""
    inside = max(mesh.tensor_parallel * mesh.context_parallel, mesh.expert_parallel)
    return inside > group.devices_per_node, inside
