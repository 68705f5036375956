"""What meshes take at least with each of their batches: the bounds that a search begins with.

Meshes whose layers are cut alike are timed together, and only for micro-batches that may fit the memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from planner.cost.any_scheme import AnyScheme
from planner.cost.floors import Floors, LeastWork, Modes
from planner.cost.ground import cut_key, dense_cut_key
from planner.cost.least_memory import LeastMemory
from planner.cost.model import ROUNDING, CostModel
from planner.cost.scheme_floors import SchemeFloors
from planner.cost.sweep import Floats
from planner.search.meshes import BatchedMesh, apart_modes
from planner.search.module_sets import quickest
from planner.search.offloading import Chain, Choice
from planner.search.placings import ordered
from planner.strategy import Batch, HostShares, Mesh, RankOrder, Sharding

Whole = NDArray[np.int64]
SHARED: Final = "mesh floors"
PER_BATCH: Final = ("places", "micro_batches")


IsLate = Callable[[int], bool]
"""Whether no plan that takes at least so many nanoseconds is worth a look."""


@dataclass(frozen=True, slots=True)
class FamilyNode:
    """Meshes whose layers are cut alike, and a step time that no plan on any of them undercuts."""

    bound_ns: int
    family: Sequence[BatchedMesh]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshVariant:
    """A batch and a chain of choices on a mesh, and a step time that no plan with them undercuts.

    ``apart`` tells schedules that make gradients of weights apart from all others.
    """

    bound_ns: int
    batch: Batch
    chain: Chain
    apart: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshFloor:
    """A mesh and step times that no plan with each of its batches and chains undercuts, quickest last.

    ``ways`` are the mesh with every way to split attention, none where there is but one; ``orders`` those
    of its ranks, its own first.
    """

    mesh: Mesh
    ways: tuple[Mesh, ...]
    orders: tuple[RankOrder, ...]
    variants: list[MeshVariant]


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

    def chains_by_way(self) -> dict[tuple[Sharding, Modes], list[int]]:
        """Return the numbers of the chains by how they share states and which modes layers choose from.

        Nothing on the host makes a plan quicker, so that its floor holds for plans with anything there.
        """
        found: dict[tuple[Sharding, Modes], list[int]] = {}
        for number, (choice, *_) in enumerate(self.batched.chains):
            found.setdefault((choice.sharding, _modes(choice)), []).append(number)
        return found


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeshNode:
    """A mesh, and a step time that no plan on it undercuts; its family is timed for so many sizes.

    ``steps`` are those of each batch where layers choose from some modes of recomputation; infinite where
    nothing fits the memory.
    """

    bound_ns: int
    held: HeldMesh
    num_sizes: int
    steps: Mapping[Modes, Floats]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SomeBatches:
    """Some batches of a mesh, as arrays; ``places`` are those of their sizes among all of interest."""

    batched: BatchedMesh
    numbers: NDArray[np.intp]
    places: NDArray[np.intp]
    micro_batches: Whole

    @classmethod
    def of(cls, batched: BatchedMesh, sizes: Whole) -> Self:
        """Look up the micro-batch sizes of a mesh."""
        batches = batched.batches
        return cls(
            batched=batched,
            numbers=np.arange(len(batches)),
            places=np.searchsorted(sizes, [batch.micro_batch_size for batch in batches]),
            micro_batches=np.array([batch.num_micro_batches for batch in batches], dtype=np.int64),
        )

    def up_to(self, count: int) -> Self | None:
        """Return the batches of the smallest sizes, None where there are none."""
        small = self.places < count
        return self.only(small) if small.any() else None

    def only(self, kept: NDArray[np.bool_]) -> Self:
        """Return some of the batches."""
        numbers, places, micro_batches = self.numbers[kept], self.places[kept], self.micro_batches[kept]
        return replace(self, numbers=numbers, places=places, micro_batches=micro_batches)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TimedMesh:
    """A mesh whose layers are timed for so many sizes: step times that no plan undercuts, by batch.

    Whatever its memory, however replicas are kept equal.
    """

    bound_ns: int
    batches: SomeBatches
    steps: Whole
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
        self._least: dict[tuple[int, ...], LeastWork] = {}

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
        return min(self.work_ns(batched.ways) for batched in family)

    def work_ns(self, ways: Sequence[Mesh]) -> int:
        """Return a step time that no plan undercuts on a mesh: work alone, however experts are spread.

        Stages run all layers together, and one of them as many whole ones as the mean or more.
        """
        setting, mesh = self._floors.model.setting, ways[0]
        key = (len(ways), *dense_cut_key(mesh))
        if key not in self._least:
            left = [self._floors.least_work(way) for way in self._schemes.left(ways, len(self._sizes))]
            self._least[key] = LeastWork(
                chain_ns=min(work.chain_ns for work in left), layer_ns=min(work.layer_ns for work in left)
            )
        work, samples = self._least[key], setting.job.global_batch_size / mesh.data_parallel
        fullest = -(-setting.num_layers // mesh.pipeline_parallel) * work.layer_ns
        return int(samples * max(work.chain_ns / mesh.pipeline_parallel, fullest * (1 - ROUNDING)))

    def of(self, node: FamilyNode, *, is_late: IsLate) -> list[TimedMesh]:
        """Return a family's meshes by what their layers take: those that are not late.

        All are timed together, for micro-batches that one layer has room for.
        """
        quick = [batched for batched in node.family if not is_late(self.work_ns(batched.ways))]
        count = self._num_sizes(quick) if quick else 0
        each = (SomeBatches.of(batched, self._sizes).up_to(count) for batched in quick)
        family = [own for own in each if own is not None]
        if not family:
            return []
        timed = zip(family, self._bounds_ns(family, count), strict=True)
        return [
            TimedMesh(bound_ns=int(steps.min()), batches=own, steps=steps, num_sizes=count)
            for own, steps in timed
            if not is_late(int(steps.min()))
        ]

    def held(self, node: TimedMesh, *, is_late: IsLate) -> MeshNode | None:
        """Return a mesh with those of its batches that may fit the memory and are not late, None for none."""
        late = np.array([is_late(step) for step in node.steps.tolist()])
        if late.all():
            return None
        quick = self._quick(node.batches.only(~late), node.num_sizes, is_late=is_late)
        held = self._held(quick) if len(quick.numbers) else None
        return None if held is None else self._node(held, node.num_sizes)

    def _quick(self, own: SomeBatches, count: int, *, is_late: IsLate) -> SomeBatches:
        """Return the batches that are not late in some modes of recomputation that leave them room.

        Whatever states take. What is found so costs little, beside pricing every way to share them.
        """
        mesh, kept = own.batched.mesh, np.zeros(len(own.numbers), dtype=np.bool_)
        batch, sizes = (own.places, own.micro_batches), self._sizes[own.places]
        for modes, numbers in chains_by_modes(own.batched).items():
            ways = tuple(dict.fromkeys(own.batched.chains[number][-1].ways for number in numbers))
            most = self.memory.most_kept(mesh, ways, sizes, own.micro_batches)
            each = [
                self._floors.least_step_ns(
                    way, *batch, mesh.pipeline_parallel, count=count, modes=modes, most=most
                )
                for way in self._schemes.left(own.batched.ways, count)
            ]
            steps = np.min(each, axis=0)
            # Infinite where stages have no room for all layers.
            kept |= np.array([step < np.inf and not is_late(int(step)) for step in steps.tolist()])
        return own.only(kept)

    def _num_sizes(self, family: Sequence[BatchedMesh]) -> int:
        """Return for how many sizes, the smallest first, one layer's micro-batch fits a device by itself."""
        mesh = family[0].mesh
        modes = {tuple(chain[-1].ways) for own in family for chain in own.chains}
        return self.memory.num_sizes(mesh, modes, self._sizes)

    def _node(self, held: HeldMesh, count: int) -> MeshNode:
        """Return a mesh with what its layers take in the modes that fit, held as whole ones by its stages."""
        most, left = self._most_layers(held), self._schemes.left(held.batched.ways, count)
        batch, stages = (held.places, held.micro_batches), held.batched.mesh.pipeline_parallel
        steps: dict[Modes, Floats] = {}
        for modes, numbers in chains_by_modes(held.batched).items():
            fits = held.fits[numbers].any(axis=0)
            if fits.any():
                each = [
                    self._floors.least_step_ns(
                        way, *batch, stages, count=count, modes=modes, most=most[:, numbers].max(axis=1)
                    )
                    for way in left
                ]
                steps[modes] = np.where(fits, np.min(each, axis=0), np.inf)
        least = min(float(own.min()) for own in steps.values())
        return MeshNode(bound_ns=int(least), held=held, num_sizes=count, steps=steps)

    def _most_layers(self, held: HeldMesh) -> Whole:
        """Return how many layers of the usual class stages can hold, [stage, chain, batch]."""
        last = [chain[-1] for chain in held.batched.chains]
        ways = [(way.sharding, way.on_host, way.ways) for way in last]
        sizes = self._sizes[held.places]
        return self.memory.most_layers(held.batched.mesh, ways, sizes, held.micro_batches)

    def _bounds_ns(self, family: Sequence[SomeBatches], count: int) -> list[Whole]:
        """Return what the layers take of meshes that cut them alike, by batch."""
        places, micro_batches = (np.concatenate([getattr(own, name) for own in family]) for name in PER_BATCH)
        sizes = [len(own.places) for own in family]
        stages = np.repeat([own.batched.mesh.pipeline_parallel for own in family], sizes)
        each = [
            self._floors.least_step_ns(way, places, micro_batches, stages, count=count)
            for way in self._schemes.left(family[0].batched.ways, count)
        ]
        return np.split(np.min(each, axis=0), np.cumsum(sizes)[:-1])

    def _held(self, own: SomeBatches) -> HeldMesh | None:
        """Return a mesh with the batches that may fit, None where none does."""
        batched = own.batched
        # The last way of a chain leaves most room.
        last = [chain[-1] for chain in batched.chains]
        if not self.memory.may_hold_states(batched.mesh, {(way.sharding, way.on_host): None for way in last}):
            return None
        ways = [(way.sharding, way.on_host, way.ways) for way in last]
        fits = self.memory.holds(batched.mesh, ways, self._sizes[own.places], own.micro_batches)
        left = np.flatnonzero(fits.any(axis=0))
        if not len(left):
            return None
        return HeldMesh(
            batched=batched,
            batches=tuple(batched.batches[number] for number in own.numbers[left].tolist()),
            places=own.places[left],
            micro_batches=own.micro_batches[left],
            fits=fits[:, left],
        )

    def floor(self, node: MeshNode, *, is_late: IsLate) -> MeshFloor:
        """Return the floors of a mesh: of what may fit and is not late by its layers."""
        held, count = node.held, node.num_sizes
        ways, batch = held.batched.ways, (held.places, held.micro_batches)
        left, most = self._schemes.left(ways, count), self._most_layers(held)
        others = [ordered(ways[0], order) for order in held.batched.orders[1:]]
        found: list[MeshVariant] = []
        for (sharding, modes), numbers in held.chains_by_way().items():
            fits = held.fits[numbers]
            if not fits.any() or is_late(int(node.steps[modes][fits.any(axis=0)].min())):
                continue
            further, room = [(other, sharding) for other in others], most[:, numbers].max(axis=1)
            chains = [held.batched.chains[number] for number in numbers]
            for apart, allowed in self._kinds(ways[0], modes, chains):
                each = [
                    self._floors.step_ns(
                        mesh, sharding, allowed, *batch, count=count, further=further, most=room, apart=apart
                    )
                    for mesh in left
                ]
                least = np.min(each, axis=0)
                updated: dict[HostShares, Floats] = {}
                for number, own in zip(numbers, fits, strict=True):
                    places, chain = np.flatnonzero(own).tolist(), held.batched.chains[number]
                    # The first way of a chain has least on the host.
                    on_host = chain[0].on_host
                    if on_host not in updated:
                        updated[on_host] = self._updated_ns(left, chain[0], allowed, batch, count, least)
                    steps = updated[on_host]
                    found += [
                        MeshVariant(
                            bound_ns=int(steps[place]), batch=held.batches[place], chain=chain, apart=apart
                        )
                        for place in places
                    ]
        found.sort(key=lambda variant: variant.bound_ns, reverse=True)
        return MeshFloor(
            mesh=ways[0],
            ways=ways if len(ways) > 1 else (),
            orders=held.batched.orders,
            variants=found,
        )

    def _kinds(self, mesh: Mesh, modes: Modes, chains: Iterable[Chain]) -> Iterator[tuple[bool, Modes]]:
        """Yield the kinds of schedules, with the modes that layers choose from under them."""
        yield False, modes
        framework = self._floors.model.setting.framework
        if framework.splits_backward and mesh.pipeline_parallel > 1:
            # The quickest ones may be none of those that go with them.
            each = (apart_modes(framework, choice.recompute) for choice, *_ in chains)
            allowed = tuple(dict.fromkeys(mode for own in each for mode in own))
            if allowed:
                yield True, allowed

    def _updated_ns(
        self,
        ways: Sequence[Mesh],
        choice: Choice,
        modes: Modes,
        batch: tuple[NDArray[np.intp], Whole],
        count: int,
        least_ns: Floats,
    ) -> Floats:
        """Return the floors of batches, ``least_ns`` where nothing is on the host, with hosts' updates."""
        if not choice.on_host.optimizer:
            return least_ns
        each = [
            self._floors.updated_step_ns(mesh, choice.sharding, choice.on_host, modes, *batch, count=count)
            for mesh in ways
        ]
        return np.asarray(np.maximum(least_ns, np.min(each, axis=0)))


def chains_by_modes(batched: BatchedMesh) -> dict[Modes, list[int]]:
    """Return the numbers of a mesh's chains by the modes that layers choose from."""
    found: dict[Modes, list[int]] = {}
    for number, (choice, *_) in enumerate(batched.chains):
        found.setdefault(_modes(choice), []).append(number)
    return found


def _modes(choice: Choice) -> Modes:
    """Return those modes of recomputation that a layer chooses from of which one is the quickest."""
    return quickest(choice.recompute)


def sizes_of(meshes: Sequence[BatchedMesh]) -> set[int]:
    """Return the micro-batch sizes of all batches."""
    return {batch.micro_batch_size for batched in meshes for batch in batched.batches}
