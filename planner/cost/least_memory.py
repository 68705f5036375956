"""The least memory that any plan of a mesh can need: asked before a mesh is timed, or soon after.

Stages share the chain, cut anywhere: all parameters' states under some sharding, and what micro-batches leave
behind under some recomputation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.capped_layers import Whole, most_whole_layers
from planner.cost.floors import Floors
from planner.cost.ground import Member
from planner.cost.memory import StateBytes, buffer_bytes, framework_bytes
from planner.cost.mesh_links import num_communicators
from planner.cost.model import ROUNDING, CostModel
from planner.cost.replicas import expert_sharding
from planner.cost.sweep import Floats
from planner.cost.wire import Wire, wire_of
from planner.strategy import HostShares, LayerWay, Layout, Mesh, Recompute, Sharding
from planner.units import Bytes
from planner.workload.layers import Layer
from planner.workload.weights import Holdings, holdings

FIRST: Final = "first"
LAST: Final = "last"
LEAST_BYTES: Final = 1e-6
"""What a layer takes at least, so that one that takes nothing can be divided by."""

Held = tuple[Sharding, HostShares, tuple[LayerWay, ...]]
"""How states are sharded, which shares of them are on the host, and the ways that layers choose from."""


@dataclass(kw_only=True, eq=False)
class LeastMemory:
    """What plans of one cost model need at least, per device."""

    model: CostModel
    floors: Floors
    _counts: Counter[int] = field(init=False)
    _layers: dict[Member, Counter[Layer]] = field(init=False)
    _held: dict[tuple[int, ...], dict[Member, tuple[tuple[Holdings, int], ...]]] = field(
        default_factory=dict, init=False
    )
    _states: dict[tuple[object, ...], dict[Member, StateBytes]] = field(default_factory=dict, init=False)
    _wires: dict[Sharding, Wire] = field(default_factory=dict, init=False)
    _largest_parts: dict[tuple[int, ...], tuple[Bytes, int]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Count the layers of the chain: those of its ends, and those of one of each class."""
        body = self.model.setting.body
        self._counts = Counter(body.sequence)
        self._layers = {FIRST: Counter(body.first), LAST: Counter(body.last)}
        for number in self._counts:
            self._layers[number] = Counter(body.classes[number])

    @property
    def limit_bytes(self) -> Bytes:
        """What a device may hold in all."""
        return self.model.group.device.memory_bytes * self.model.memory_fraction

    def may_hold_states(self, mesh: Mesh, states: Iterable[tuple[Sharding, HostShares]]) -> bool:
        """Whether the states of a mesh may fit, sharded and on the host in one of some ways."""
        stages = mesh.pipeline_parallel
        return any(
            self._whole_state_bytes(mesh, *held) <= self._room(mesh, held[0]) * stages for held in states
        )

    def may_hold(self, layout: Layout) -> bool:
        """Whether states and what passes keep may fit, every layer run in the most frugal of its ways."""
        batch = layout.batch
        sizes, passes = np.array([[batch.micro_batch_size], [batch.num_micro_batches]])
        held = (layout.sharding, layout.on_host, layout.ways)
        return bool(self.holds(layout.mesh, [held], sizes, passes)[0, 0])

    def modes_that_may_hold(self, layout: Layout) -> tuple[Recompute, ...]:
        """Return the modes in which states and what passes keep may fit with all layers run alike."""
        batch = layout.batch
        sizes, passes = np.array([[batch.micro_batch_size], [batch.num_micro_batches]])
        held = [(layout.sharding, layout.on_host, (way,)) for way in layout.ways]
        fits = self.holds(layout.mesh, held, sizes, passes)[:, 0].tolist()
        return tuple(mode for mode, fit in zip(layout.recompute, fits, strict=True) if fit)

    def holds(
        self,
        mesh: Mesh,
        ways: Sequence[Held],
        sizes: NDArray[np.int64],
        micro_batches: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return whether plans may fit, [way, micro-batch size and number].

        See `chain_may_fit`.
        """
        return self._held_ways(mesh, ways, sizes).may_fit(micro_batches)

    def num_sizes(self, mesh: Mesh, ways: Iterable[tuple[LayerWay, ...]], sizes: NDArray[np.int64]) -> int:
        """Return for how many sizes, ascending, a device has room for what one layer keeps or makes again."""
        usual, _ = self._counts.most_common(1)[0]
        saved = (self.floors.family(mesh).least_saved(each, sizes) for each in ways)
        needed = np.min([each.classes[usual] + each.working for each in saved], axis=0)
        return int(np.flatnonzero(needed <= self.limit_bytes).max(initial=-1)) + 1

    def most_kept(
        self,
        mesh: Mesh,
        ways: Sequence[tuple[LayerWay, ...]],
        sizes: NDArray[np.int64],
        micro_batches: NDArray[np.int64],
    ) -> Whole:
        """Return how many layers of the class that most are of a stage can hold, whatever states take.

        [stage, batch], in the way that leaves most room. Cheaper than `most_layers`, and never below it.
        """
        states = dict.fromkeys(self._layers, np.zeros((1, 1)))
        rooms = self._stage_rooms(mesh, ways, sizes, states, np.array([[self._beside_process(mesh)]]))
        return np.asarray(rooms.most_layers(micro_batches).max(axis=1))

    def most_layers(
        self,
        mesh: Mesh,
        ways: Sequence[Held],
        sizes: NDArray[np.int64],
        micro_batches: NDArray[np.int64],
    ) -> Whole:
        """Return how many layers of the class that most are of a stage can hold, [stage, way, batch].

        At its first backward pass; see `StageRooms.most_layers`.
        """
        return self._held_ways(mesh, ways, sizes).most_layers(micro_batches)

    def _held_ways(self, mesh: Mesh, ways: Sequence[Held], sizes: NDArray[np.int64]) -> "StageRooms":
        known: dict[tuple[Sharding, HostShares], dict[Member, Bytes]] = {}
        for sharding, on_host, _ in ways:
            if (sharding, on_host) not in known:
                known[sharding, on_host] = self._state_bytes(mesh, sharding, on_host)
        states = {part: np.array([[known[way[:2]][part]] for way in ways]) for part in self._layers}
        room = np.array([[self._room(mesh, sharding)] for sharding, _, _ in ways])
        return self._stage_rooms(mesh, [each for _, _, each in ways], sizes, states, room)

    def _stage_rooms(
        self,
        mesh: Mesh,
        ways: Sequence[tuple[LayerWay, ...]],
        sizes: NDArray[np.int64],
        states: Mapping[Member, Floats],
        room_bytes: Floats,
    ) -> "StageRooms":
        family, framework = self.floors.family(mesh), self.model.setting.framework
        known = {each: family.least_saved(each, sizes) for each in dict.fromkeys(ways)}
        saved = [known[each] for each in ways]
        reserved = 1 + framework.footprint.fragmentation(mesh.pipeline_parallel)
        return StageRooms(
            classes=[
                AlikeLayers(
                    count=count,
                    states=states[number],
                    kept=reserved * np.array([each.classes[number] for each in saved]),
                )
                for number, count in self._counts.most_common()
            ],
            first=End(states=states[FIRST], kept=reserved * np.array([each.first for each in saved])),
            last=End(states=states[LAST], kept=reserved * np.array([each.last for each in saved])),
            working=reserved * np.array([each.working for each in saved]),
            room_bytes=room_bytes,
            num_stages=mesh.pipeline_parallel,
            empty_ends=framework.empty_ends,
            folds=any(name.folds for name in framework.schedules),
        )

    def _whole_state_bytes(self, mesh: Mesh, sharding: Sharding, on_host: HostShares) -> Bytes:
        """Return the least states of the whole chain on the devices of one pipeline."""
        each = self._state_bytes(mesh, sharding, on_host)
        return each[FIRST] + each[LAST] + sum(count * each[number] for number, count in self._counts.items())

    def _room(self, mesh: Mesh, sharding: Sharding) -> Bytes:
        """Return what a device has left beside the framework's process and buffers around layers."""
        footprint = self.model.setting.framework.footprint
        gathered, trained = self._largest(mesh)
        wire = self._wire(sharding)
        buffers = footprint.buffer_bytes + buffer_bytes(
            gathered_bytes=gathered,
            trained_parameters=trained,
            gradient_bytes=wire.buffered_gradient,
            sharding=sharding,
        )
        return self._beside_process(mesh) - buffers * (1 + footprint.fragmentation(mesh.pipeline_parallel))

    def _beside_process(self, mesh: Mesh) -> Bytes:
        """Return what a device has left beside what the framework's process takes."""
        footprint = self.model.setting.framework.footprint
        return self.limit_bytes - framework_bytes(num_groups=num_communicators(mesh), footprint=footprint)

    def _wire(self, sharding: Sharding) -> Wire:
        if sharding not in self._wires:
            setting = self.model.setting
            self._wires[sharding] = wire_of(
                setting.framework, sharding, self.model.widths, setting.job.precision
            )
        return self._wires[sharding]

    def _largest(self, mesh: Mesh) -> tuple[Bytes, int]:
        """Return the most bytes that gathers move for a layer or an end, and the most that one trains."""
        cut = _cut_of(mesh)
        if cut not in self._largest_parts:
            parts, gathered = self._holdings(mesh, cut).values(), self.model.states.gathered_bytes
            self._largest_parts[cut] = (
                max(
                    sum(count * (gathered(held.dense) + gathered(held.experts)) for held, count in own)
                    for own in parts
                ),
                max(
                    sum(
                        count * (held.dense.trained.parameters + held.experts.trained.parameters)
                        for held, count in own
                    )
                    for own in parts
                ),
            )
        return self._largest_parts[cut]

    def _state_bytes(self, mesh: Mesh, sharding: Sharding, on_host: HostShares) -> dict[Member, Bytes]:
        """Return the least states on a device: of the ends, and of one layer of each class."""
        return {
            part: states.total
            if not on_host.is_any
            else (1 - on_host.parameters) * states.parameters
            + (1 - on_host.gradients) * states.gradients
            + (1 - on_host.optimizer) * states.optimizer
            for part, states in self._states_of(mesh, sharding).items()
        }

    def _states_of(self, mesh: Mesh, sharding: Sharding) -> dict[Member, StateBytes]:
        cut = _cut_of(mesh)
        key = (*cut, mesh.replicas, sharding)
        if key not in self._states:
            self._states[key] = {
                part: self._states_at_rest(own, mesh, sharding)
                for part, own in self._holdings(mesh, cut).items()
            }
        return self._states[key]

    def _states_at_rest(
        self, own: Iterable[tuple[Holdings, int]], mesh: Mesh, sharding: Sharding
    ) -> StateBytes:
        experts = sharding.experts or expert_sharding(sharding, mesh)
        at_rest = self.model.states.at_rest
        parameters, gradients, optimizer = 0.0, 0.0, 0.0
        for held, count in own:
            for states in (
                at_rest(held.dense, sharding, replicas=mesh.replicas),
                at_rest(held.experts, experts, replicas=mesh.expert_replicas),
            ):
                parameters += count * states.parameters
                gradients += count * states.gradients
                optimizer += count * states.optimizer
        return StateBytes(parameters=parameters, gradients=gradients, optimizer=optimizer)

    def _holdings(self, mesh: Mesh, key: tuple[int, ...]) -> dict[Member, tuple[tuple[Holdings, int], ...]]:
        if key not in self._held:
            cut = self.model.cut(mesh, 1)
            self._held[key] = {
                part: tuple((holdings(layer, cut), count) for layer, count in own.items())
                for part, own in self._layers.items()
            }
        return self._held[key]


def _cut_of(mesh: Mesh) -> tuple[int, ...]:
    """Return what decides which parameters a device holds of a layer."""
    return (mesh.tensor_parallel, mesh.expert_parallel, mesh.expert_tensor_parallel)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AlikeLayers:
    """Layers of one class: how many, and the bytes of one's states and of what a micro-batch leaves in it."""

    count: int
    states: Floats
    kept: Floats


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class End:
    """An end of the chain: the bytes of its states and of what a micro-batch leaves in it, [way, batch]."""

    states: Floats
    kept: Floats


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StageRooms:
    """A chain and the rooms of the stages that it is split over; arrays are of one shape, [way, batch].

    ``working`` is beside what a stage keeps while a layer runs again.
    """

    classes: Sequence[AlikeLayers]
    """That which most layers are of first."""
    first: End
    last: End
    working: Floats
    room_bytes: Floats
    num_stages: int
    empty_ends: bool
    folds: bool
    """Whether some schedule may put the last chunk on the first stage."""

    def may_fit(self, micro_batches: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether some split of the chain may fit: whole layers of a class, and all layers alike."""
        ends = self.first.states + self.last.states + self.first.kept + self.last.kept
        alike = chain_may_fit(
            self.classes,
            ends,
            room_bytes=self.room_bytes,
            num_stages=self.num_stages,
            micro_batches=micro_batches,
        )
        whole = self.most_layers(micro_batches).sum(axis=0) >= self.classes[0].count
        return np.asarray(alike & whole)

    def most_layers(self, micro_batches: NDArray[np.int64]) -> Whole:
        """Return how many layers of the class that most are of each stage can hold, [stage, way, batch].

        Stage i of p keeps at least min(p - i, m) micro-batches of each at its first backward pass, beside
        the end of the chain that it holds. Its last chunk runs it: one of the counted layers again, unless it
        holds none, as it may at the end of the chain beside others. Where chunks are folded ends may be on
        one stage, and stages keep as much in another order: then nothing is known but the layers.
        """
        usual, stages = self.classes[0], self.num_stages
        stage = np.arange(stages)[:, None, None]
        kept = np.minimum(stages - stage, micro_batches)
        room = self.room_bytes
        if not self.folds:
            room = room - (stage == 0) * (self.first.states + kept * self.first.kept)
            room = room - (stage == stages - 1) * (self.last.states + kept * self.last.kept)
            runs_again = (stage < stages - 1) | (stages == 1) | (not self.empty_ends)
            room = room - runs_again * self.working
        return most_whole_layers(np.asarray(room), usual.states + kept * usual.kept)


def chain_may_fit(
    classes: Sequence[AlikeLayers],
    ends: Floats,
    *,
    room_bytes: Bytes | Floats,
    num_stages: int,
    micro_batches: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return whether some split of a chain over stages may fit the room of each; arrays of one shape.

    ``ends`` are the bytes that both hold, ``micro_batches`` those of a step. Stage i of p keeps at least
    min(p - i, m) of them, so it holds at most as many layers as fit beside that, and all stages together
    have to hold the chain. Where layers differ each counts as so many of the first class, as far as both its
    states and what it keeps go. Bytes beyond, and those of the ends, are there once at least, and displace
    least on the stages that keep most.
    """
    usual, layers, beyond = classes[0], np.zeros_like(ends), ends
    for own in classes:
        alike = np.minimum(_ratio(own.states, usual.states), _ratio(own.kept, usual.kept))
        alike = np.where(np.isfinite(alike), alike, 0.0)
        rest = own.states - alike * usual.states + own.kept - alike * usual.kept
        layers, beyond = layers + own.count * alike, beyond + own.count * rest
    # From the first stage on, which keeps most.
    stage = np.arange(num_stages)[:, None, None]
    left = room_bytes - np.clip(beyond - stage * room_bytes, 0, np.maximum(room_bytes, 0))
    held = usual.states + np.minimum(num_stages - stage, micro_batches) * usual.kept
    most = (left / np.maximum(held, LEAST_BYTES)).sum(axis=0)
    within = beyond <= num_stages * room_bytes * (1 + ROUNDING)
    return np.asarray(within & (most >= layers * (1 - ROUNDING)))


def _ratio(own: Floats, usual: Floats) -> Floats:
    """Return how many times the usual class's a figure is, infinity where that is 0."""
    ratio: Floats = np.divide(own, usual, out=np.full(np.shape(own), np.inf), where=usual > 0)
    return ratio
