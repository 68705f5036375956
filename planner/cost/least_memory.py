"""The least memory that any plan of a mesh can need: asked before a mesh is timed, or soon after.

Stages share the chain, so one of them holds at least its mean: all parameters' states under the widest
sharding, and what one micro-batch leaves behind when every layer is recomputed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from planner.cost.memory import framework_bytes
from planner.cost.mesh_links import num_communicators
from planner.cost.model import CostModel
from planner.cost.replicas import expert_sharding
from planner.strategy import Mesh, Sharding
from planner.units import Bytes
from planner.workload.layers import Layer
from planner.workload.recomputation import WHOLE_LAYER, saved_bytes
from planner.workload.weights import Holdings, holdings


@dataclass(kw_only=True, eq=False)
class LeastMemory:
    """What plans of one cost model need at least, per device."""

    model: CostModel
    _layers: Counter[Layer] = field(init=False)
    _held: dict[tuple[int, ...], tuple[tuple[Holdings, int], ...]] = field(default_factory=dict, init=False)
    _states: dict[tuple[object, ...], Bytes] = field(default_factory=dict, init=False)

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

    def may_hold_states(self, mesh: Mesh, shardings: Iterable[Sharding]) -> bool:
        """Whether the states of a mesh may fit under one of some ways to shard them."""
        return self._room(mesh, shardings) >= 0

    def may_hold(self, mesh: Mesh, micro_batch_size: int, shardings: Sequence[Sharding]) -> bool:
        """Whether states and one micro-batch may fit; times the mesh's layers as a search does anyhow."""
        passes = self.model.passes(mesh, micro_batch_size)
        saved = sum(
            count * saved_bytes(passes[layer].operators, recompute=WHOLE_LAYER)
            for layer, count in self._layers.items()
        )
        return saved / mesh.pipeline_parallel <= self._room(mesh, shardings)

    def _room(self, mesh: Mesh, shardings: Iterable[Sharding]) -> Bytes:
        """Return what the mean stage has left beside its states; negative where they do not fit."""
        footprint = self.model.setting.framework.footprint
        base = framework_bytes(num_groups=num_communicators(mesh), footprint=footprint)
        least = min((self._state_bytes(mesh, sharding) for sharding in shardings), default=0.0)
        return self.limit_bytes - base - least / mesh.pipeline_parallel

    def _state_bytes(self, mesh: Mesh, sharding: Sharding) -> Bytes:
        """Return the states of the whole chain on the devices of one pipeline."""
        cut = (mesh.tensor_parallel, mesh.expert_parallel, mesh.expert_tensor_parallel)
        key = (*cut, mesh.replicas, sharding)
        if key not in self._states:
            experts = sharding.experts or expert_sharding(sharding, mesh)
            at_rest = self.model.states.at_rest
            self._states[key] = sum(
                count
                * (
                    at_rest(held.dense, sharding, replicas=mesh.replicas).total
                    + at_rest(held.experts, experts, replicas=mesh.expert_replicas).total
                )
                for held, count in self._holdings(mesh, cut)
            )
        return self._states[key]

    def _holdings(self, mesh: Mesh, key: tuple[int, ...]) -> tuple[tuple[Holdings, int], ...]:
        if key not in self._held:
            cut = self.model.cut(mesh, 1)
            self._held[key] = tuple((holdings(layer, cut), count) for layer, count in self._layers.items())
        return self._held[key]
