"""The least memory that any plan of a mesh can need: asked before a mesh is timed, or soon after.

Stages share the chain, cut anywhere: all parameters' states under some sharding, and what micro-batches leave
behind under some recomputation.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.cost.floors import Floors
from planner.cost.memory import StateBytes, framework_bytes
from planner.cost.mesh_links import num_communicators
from planner.cost.model import ROUNDING, CostModel
from planner.cost.replicas import expert_sharding
from planner.strategy import HostShares, LayerWay, Layout, Mesh, Sharding
from planner.units import Bytes
from planner.workload.layers import Layer
from planner.workload.weights import Holdings, holdings

Held = tuple[Sharding, HostShares, tuple[LayerWay, ...]]
"""How states are sharded, which shares of them are on the host, and the ways that layers choose from."""


@dataclass(kw_only=True, eq=False)
class LeastMemory:
    """What plans of one cost model need at least, per device."""

    model: CostModel
    floors: Floors
    _layers: Counter[Layer] = field(init=False)
    _held: dict[tuple[int, ...], tuple[tuple[Holdings, int], ...]] = field(default_factory=dict, init=False)
    _states: dict[tuple[object, ...], StateBytes] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Count the layers of the chain."""
        body = self.model.setting.body
        counts: Counter[Layer] = Counter([*body.first, *body.last])
        for number, count in Counter(body.sequence).items():
            for layer in body.classes[number]:
                counts[layer] += count
        self._layers = counts

    @property
    def limit_bytes(self) -> Bytes:
        """What a device may hold in all."""
        return self.model.group.device.memory_bytes * self.model.memory_fraction

    def may_hold_states(self, mesh: Mesh, states: Iterable[tuple[Sharding, HostShares]]) -> bool:
        """Whether the states of a mesh may fit, sharded and on the host in one of some ways."""
        room = self._room(mesh) * mesh.pipeline_parallel
        return any(self._state_bytes(mesh, *held) <= room for held in states)

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

        Stage i of p keeps min(p - i, m) micro-batches, more under other schedules than 1F1B; so it holds at
        most the part of the chain that fits beside that, and all stages together must hold the whole.
        """
        room, stages = self._room(mesh), mesh.pipeline_parallel
        family = self.floors.family(mesh)
        saved = {each: family.least_saved(each, sizes) for _, _, each in ways}
        states = np.array([self._state_bytes(mesh, sharding, on_host) for sharding, on_host, _ in ways])
        kept = np.minimum(np.arange(1, stages + 1)[:, None, None], micro_batches)
        held = states[:, None] + kept * np.array([saved[each] for _, _, each in ways])
        parts = room / np.maximum(held, 1.0)
        return np.asarray(parts.sum(axis=0) >= 1 - ROUNDING)

    def _room(self, mesh: Mesh) -> Bytes:
        """Return what a device has left beside what the framework's process takes."""
        footprint = self.model.setting.framework.footprint
        return self.limit_bytes - framework_bytes(num_groups=num_communicators(mesh), footprint=footprint)

    def _state_bytes(self, mesh: Mesh, sharding: Sharding, on_host: HostShares) -> Bytes:
        """Return the least states of the whole chain on the devices of one pipeline."""
        states = self._states_of(mesh, sharding)
        if not on_host.is_any:
            return states.total
        return (
            (1 - on_host.parameters) * states.parameters
            + (1 - on_host.gradients) * states.gradients
            + (1 - on_host.optimizer) * states.optimizer
        )

    def _states_of(self, mesh: Mesh, sharding: Sharding) -> StateBytes:
        cut = (mesh.tensor_parallel, mesh.expert_parallel, mesh.expert_tensor_parallel)
        key = (*cut, mesh.replicas, sharding)
        if key not in self._states:
            experts = sharding.experts or expert_sharding(sharding, mesh)
            at_rest = self.model.states.at_rest
            parameters, gradients, optimizer = 0.0, 0.0, 0.0
            for held, count in self._holdings(mesh, cut):
                for states in (
                    at_rest(held.dense, sharding, replicas=mesh.replicas),
                    at_rest(held.experts, experts, replicas=mesh.expert_replicas),
                ):
                    parameters += count * states.parameters
                    gradients += count * states.gradients
                    optimizer += count * states.optimizer
            self._states[key] = StateBytes(parameters=parameters, gradients=gradients, optimizer=optimizer)
        return self._states[key]

    def _holdings(self, mesh: Mesh, key: tuple[int, ...]) -> tuple[tuple[Holdings, int], ...]:
        if key not in self._held:
            cut = self.model.cut(mesh, 1)
            self._held[key] = tuple((holdings(layer, cut), count) for layer, count in self._layers.items())
        return self._held[key]
