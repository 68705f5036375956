"""What keeping replicas equal adds at least to layers: beside their passes, and once a step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.cost.data_parallel import ReplicaCosts
from planner.cost.ground import Member
from planner.cost.model import CostModel
from planner.cost.replicas import Replicas, replicas_key
from planner.cost.sweep import Floats
from planner.cost.tally import Tally, total
from planner.strategy import NOTHING_ON_HOST, HostShares, Mesh, Sharding, ZeroStage
from planner.units import Seconds
from planner.workload.weights import Holding, Holdings, holdings


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What is sent beside the part of a layer's passes that hides it, per micro-batch."""

    fraction: float
    """Of the layer's work."""
    forward_seconds: Seconds
    backward_seconds: Seconds
    contention_fraction: float
    converted_forward_seconds: Seconds
    converted_backward_seconds: Seconds
    """What converting takes of it, which nothing hides."""

    def shown(self, forward: Floats, backward: Floats) -> Floats:
        """Return what passes of so many seconds show of it."""
        # A layer without a backward pass is not gathered for one.
        again = np.where(backward > 0, self.backward_seconds, 0.0)
        covered = np.minimum(self.forward_seconds, self.fraction * forward)
        covered = covered + np.minimum(again, self.fraction * backward)
        converted = self.converted_forward_seconds + np.where(
            backward > 0, self.converted_backward_seconds, 0.0
        )
        sent = self.forward_seconds + again
        return np.asarray(sent + converted - (1.0 - self.contention_fraction) * covered)


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What the replicas of one class of counted layers add to each of them.

    ``update_ns`` is what one layer of the first stage takes once a step besides its passes.
    """

    shares: tuple[Share, ...]
    update_ns: int


@dataclass(kw_only=True, eq=False)
class ReplicaFloors:
    """The traffic of one cost model's meshes; meshes that cut and shard layers alike share it."""

    model: CostModel
    _held: dict[tuple[int, ...], Mapping[Member, Holdings]] = field(default_factory=dict, init=False)
    _updates_ns: dict[tuple[object, ...], int] = field(default_factory=dict, init=False)
    _known: dict[tuple[object, ...], Mapping[int, Traffic]] = field(default_factory=dict, init=False)

    def of(
        self, mesh: Mesh, sharding: Sharding, *, further: Sequence[tuple[Mesh, Sharding]] = ()
    ) -> Mapping[int, Traffic]:
        """Return the traffic of every class of counted layers, no more than in any ``further`` way."""
        others = [each for each in further if self._shows_traffic(sharding)]
        key = (*_cut(mesh), replicas_key(mesh, sharding), *(replicas_key(*other) for other in others))
        if key not in self._known:
            replicas, held = self._replicas(mesh, sharding, others), self._holdings(mesh)
            self._known[key] = {
                number: self._traffic(held[number], replicas)
                for number, _ in enumerate(self.model.setting.body.classes)
            }
        return self._known[key]

    def updates_ns(self, mesh: Mesh, sharding: Sharding, *, on_host: HostShares) -> int:
        """Return what the updates of all layers and both ends take, hosts making their shares of them."""
        key = (*_cut(mesh), replicas_key(mesh, sharding), on_host)
        if key not in self._updates_ns:
            replicas, held = self._replicas(mesh, sharding, ()), self._holdings(mesh)
            counts: Mapping[Member, int] = Counter(self.model.setting.body.sequence)
            self._updates_ns[key] = sum(
                counts.get(name, 1) * self._updated(own, replicas, on_host).nanoseconds
                for name, own in held.items()
            )
        return self._updates_ns[key]

    def _replicas(self, mesh: Mesh, sharding: Sharding, others: Sequence[tuple[Mesh, Sharding]]) -> Replicas:
        links = self.model.links
        return self.model.replicas(
            links(mesh), sharding, others=[(links(other), own) for other, own in others]
        )

    def _updated(self, held: Holdings, replicas: Replicas, on_host: HostShares = NOTHING_ON_HOST) -> Tally:
        """Return the update of layers that hold so much."""
        updated = total(
            self.model.states.update(holding.trained, share.sharding)
            for holding, share in _parts(held, replicas)
        )
        if on_host.optimizer:
            updated += self.model.host_costs.update(self.model.host_part(held, replicas), updated, on_host)
        return updated

    def _shows_traffic(self, sharding: Sharding) -> bool:
        """Whether a step shows what replicas exchange, as far as these floors count it."""
        framework = self.model.setting.framework
        in_passes = sharding.zero_stage >= ZeroStage.GRADIENTS or sharding.parameters > 1
        once = not (framework.overlaps_parameter_gather and framework.overlaps_gradient_reduction)
        return in_passes or once

    def _traffic(self, held: Holdings, replicas: Replicas) -> Traffic:
        states, framework = self.model.states, self.model.setting.framework
        parts = _parts(held, replicas)
        shares = [
            Share(
                fraction=holding.parameters / held.parameters,
                forward_seconds=share.beside_forward(states.gathered_bytes(holding)).seconds,
                backward_seconds=share.beside_backward(
                    states.gathered_bytes(holding), holding.reduced
                ).seconds,
                contention_fraction=share.contention_fraction,
                converted_forward_seconds=share.converted_forward(states.gathered_bytes(holding)).seconds,
                converted_backward_seconds=share.converted_backward(
                    states.gathered_bytes(holding), holding.reduced
                ).seconds,
            )
            for holding, share in parts
        ]
        update = self._updated(held, replicas).nanoseconds
        if not framework.overlaps_parameter_gather:
            update += total(
                share.gather_per_step(holding.trained.parameters) for holding, share in parts
            ).nanoseconds
        # What ends on another stage is not followed by the first one's reductions.
        if not framework.overlaps_gradient_reduction and not framework.splits_backward:
            update += total(share.reduction_per_step(holding.reduced) for holding, share in parts).nanoseconds
        return Traffic(shares=tuple(shares), update_ns=update)

    def _holdings(self, mesh: Mesh) -> Mapping[Member, Holdings]:
        key = _cut(mesh)
        if key not in self._held:
            cut = self.model.cut(mesh, 1)
            self._held[key] = {
                name: sum((holdings(layer, cut) for layer in layers), Holdings())
                for name, layers in self.model.members.items()
            }
        return self._held[key]


def _cut(mesh: Mesh) -> tuple[int, ...]:
    """Return what decides the parameters that a device holds of a layer."""
    return (mesh.tensor_parallel, mesh.expert_parallel, mesh.expert_tensor_parallel)


def _parts(held: Holdings, replicas: Replicas) -> list[tuple[Holding, ReplicaCosts]]:
    """Return what layers hold by who shares it, with how it is shared."""
    both = ((held.dense, replicas.dense), (held.experts, replicas.experts))
    return [(holding, share) for holding, share in both if holding.parameters]
