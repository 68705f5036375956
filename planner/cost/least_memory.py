"""The least memory that any plan of a mesh can need: asked before a mesh is timed, or soon after.

Stages share the chain, cut anywhere: all parameters' states under some sharding, and what micro-batches leave
behind under some recomputation.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from planner.cost.floors import Floors
from planner.cost.memory import StateBytes, framework_bytes
from planner.cost.mesh_links import num_communicators
from planner.cost.model import ROUNDING, CostModel
from planner.cost.replicas import expert_sharding
from planner.cost.sweep import Floats
from planner.strategy import HostShares, LayerWay, Layout, Mesh, Sharding
from planner.units import Bytes
from planner.workload.layers import Layer
from planner.workload.weights import Holdings, holdings

Part = int | Literal["ends"]
"""One layer of a class by its number, or both ends of the chain together."""

ENDS: Final = "ends"
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
    _layers: dict[Part, Counter[Layer]] = field(init=False)
    _held: dict[tuple[int, ...], dict[Part, tuple[tuple[Holdings, int], ...]]] = field(
        default_factory=dict, init=False
    )
    _states: dict[tuple[object, ...], dict[Part, StateBytes]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Count the layers of the chain: those of its ends, and those of one of each class."""
        body = self.model.setting.body
        self._counts = Counter(body.sequence)
        self._layers = {ENDS: Counter([*body.first, *body.last])}
        for number in self._counts:
            self._layers[number] = Counter(body.classes[number])

    @property
    def limit_bytes(self) -> Bytes:
        """What a device may hold in all."""
        return self.model.group.device.memory_bytes * self.model.memory_fraction

    def may_hold_states(self, mesh: Mesh, states: Iterable[tuple[Sharding, HostShares]]) -> bool:
        """Whether the states of a mesh may fit, sharded and on the host in one of some ways."""
        room = self._room(mesh) * mesh.pipeline_parallel
        return any(self._whole_state_bytes(mesh, *held) <= room for held in states)

    def may_hold(self, layout: Layout) -> bool:
        """Whether states and what passes keep may fit, every layer run in the most frugal of its ways."""
        batch = layout.batch
        sizes, passes = np.array([[batch.micro_batch_size], [batch.num_micro_batches]])
        held = (layout.sharding, layout.on_host, layout.ways)
        return bool(self.holds(layout.mesh, [held], sizes, passes)[0, 0])

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
        family = self.floors.family(mesh)
        saved = {each: family.least_saved(each, sizes) for _, _, each in ways}
        states = {
            part: np.array([[self._state_bytes(mesh, *way[:2])[part]] for way in ways])
            for part in self._layers
        }
        return chain_may_fit(
            [
                AlikeLayers(
                    count=count,
                    states=states[number],
                    kept=np.array([saved[each].classes[number] for _, _, each in ways]),
                )
                for number, count in self._counts.most_common()
            ],
            states[ENDS] + np.array([saved[each].ends for _, _, each in ways]),
            room_bytes=self._room(mesh),
            num_stages=mesh.pipeline_parallel,
            micro_batches=micro_batches,
        )

    def _whole_state_bytes(self, mesh: Mesh, sharding: Sharding, on_host: HostShares) -> Bytes:
        """Return the least states of the whole chain on the devices of one pipeline."""
        each = self._state_bytes(mesh, sharding, on_host)
        return each[ENDS] + sum(count * each[number] for number, count in self._counts.items())

    def _room(self, mesh: Mesh) -> Bytes:
        """Return what a device has left beside what the framework's process takes."""
        footprint = self.model.setting.framework.footprint
        return self.limit_bytes - framework_bytes(num_groups=num_communicators(mesh), footprint=footprint)

    def _state_bytes(self, mesh: Mesh, sharding: Sharding, on_host: HostShares) -> dict[Part, Bytes]:
        """Return the least states on a device: of the ends, and of one layer of each class."""
        return {
            part: states.total
            if not on_host.is_any
            else (1 - on_host.parameters) * states.parameters
            + (1 - on_host.gradients) * states.gradients
            + (1 - on_host.optimizer) * states.optimizer
            for part, states in self._states_of(mesh, sharding).items()
        }

    def _states_of(self, mesh: Mesh, sharding: Sharding) -> dict[Part, StateBytes]:
        cut = (mesh.tensor_parallel, mesh.expert_parallel, mesh.expert_tensor_parallel)
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

    def _holdings(self, mesh: Mesh, key: tuple[int, ...]) -> dict[Part, tuple[tuple[Holdings, int], ...]]:
        if key not in self._held:
            cut = self.model.cut(mesh, 1)
            self._held[key] = {
                part: tuple((holdings(layer, cut), count) for layer, count in own.items())
                for part, own in self._layers.items()
            }
        return self._held[key]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AlikeLayers:
    """Layers of one class: how many, and the bytes of one's states and of what a micro-batch leaves in it."""

    count: int
    states: Floats
    kept: Floats


def chain_may_fit(
    classes: Sequence[AlikeLayers],
    ends: Floats,
    *,
    room_bytes: Bytes,
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
    left = room_bytes - np.clip(beyond - stage * room_bytes, 0, max(room_bytes, 0))
    held = usual.states + np.minimum(num_stages - stage, micro_batches) * usual.kept
    most = (left / np.maximum(held, LEAST_BYTES)).sum(axis=0)
    within = beyond <= num_stages * room_bytes * (1 + ROUNDING)
    return np.asarray(within & (most >= layers * (1 - ROUNDING)))


def _ratio(own: Floats, usual: Floats) -> Floats:
    """Return how many times the usual class's a figure is, infinity where that is 0."""
    ratio: Floats = np.divide(own, usual, out=np.full(np.shape(own), np.inf), where=usual > 0)
    return ratio
