"""Where what ranks share is put: which axis is inside on the network's levels, and groups of replicas.

None of it cuts a layer differently. So a mesh is bounded once for all of it, each exchange taking what the
quickest way takes, and only layouts that this leaves open are priced in every way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import gcd
from typing import Final

from planner.cluster import Topology
from planner.cost.geometry import Axes, replica_axes
from planner.cost.group_shape import spread_shape
from planner.cost.pipeline import FixedPart, LayerClass, PipelineProblem
from planner.limits import STATES
from planner.search.space import Space
from planner.strategy import (
    DEFAULT_RANK_ORDER,
    PIPELINE_INSIDE,
    Layout,
    Mesh,
    RankOrder,
    Sharding,
    expert_order_beside,
)

TRIED: Final = (DEFAULT_RANK_ORDER, PIPELINE_INSIDE)
"""Orders with tensor and context parallel innermost, the usual one first."""
RANK_ORDER: Final = "rank_order"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placing:
    """An order of ranks, and the groups that share each state."""

    rank_order: RankOrder
    sharding: Sharding

    def on(self, layout: Layout) -> Layout:
        """Return a layout placed so."""
        return replace(layout, mesh=ordered(layout.mesh, self.rank_order), sharding=self.sharding)


def ordered(mesh: Mesh, rank_order: RankOrder) -> Mesh:
    """Return a mesh whose ranks are numbered in an order, those of experts in the one that goes with it."""
    if mesh.rank_order == rank_order:
        return mesh
    return replace(mesh, rank_order=rank_order, expert_rank_order=expert_order_beside(rank_order))


def rank_orders(space: Space) -> tuple[RankOrder, ...]:
    """Return the orders that a search tries, the usual one first."""
    given = space.fixed(RANK_ORDER)
    if isinstance(given, Sequence):
        return (tuple(given),)
    legal = space.setting.framework.limits.rank_orders
    tried = tuple(order for order in TRIED if not legal or order in legal) or legal
    return tried[:1] if is_beside_hosts(space) else tried


def is_beside_hosts(space: Space) -> bool:
    """Whether something may be on the host: what the stages of a node share there depends on the order."""
    return space.looks_at_hosts or "offload" in space.constraints.fixed


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """The orders of a space's meshes."""

    space: Space
    tried: tuple[RankOrder, ...]

    @classmethod
    def of(cls, space: Space) -> "Orders":
        """Take the orders that a space leaves open."""
        return cls(space=space, tried=rank_orders(space))

    def on(self, mesh: Mesh) -> tuple[RankOrder, ...]:
        """Return the orders that make a difference to a mesh, that which it has first."""
        if len(self.tried) == 1 or min(mesh.pipeline_parallel, mesh.data_parallel) == 1:
            return (mesh.rank_order,)
        innermost = self.space.setting.cluster.node_groups[0].levels[0]
        if mesh.world_size <= innermost.devices and innermost.topology is Topology.SWITCH:
            return (mesh.rank_order,)
        others = (order for order in self.tried if order != mesh.rank_order)
        return (mesh.rank_order, *(order for order in others if self.allows(ordered(mesh, order))))

    def allows(self, mesh: Mesh) -> bool:
        """Whether the experts of a mesh, if there are any, have their stages where all else has them."""
        return not self.space.setting.has_experts or mesh.stages_agree


@dataclass(kw_only=True, eq=False)
class Groups:
    """The groups of replicas that may share states: as many nearest ones as a level of links has, or all.

    With something on the host all replicas share: what the stages of a node keep there adds up.
    """

    space: Space
    orders: Orders
    _within: dict[Axes, frozenset[int]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, space: Space) -> "Groups":
        """Take the groups that a space leaves open."""
        return cls(space=space, orders=Orders.of(space))

    def sizes(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the sizes of the groups of a mesh that are tried, under any order of its ranks, all last."""
        replicas = mesh.replicas
        if replicas == 1 or not is_searched(self.space):
            return (replicas,)
        axes = (replica_axes(ordered(mesh, order)) for order in self.orders.on(mesh))
        near = {gcd(ranks, replicas) for each in axes for ranks in self._ranks_within(each)}
        return tuple(sorted({*near, replicas} - {1}))

    def _ranks_within(self, axes: Axes) -> frozenset[int]:
        """Return how many ranks along some axes lie within a node, and within each level."""
        if axes not in self._within:
            shape = spread_shape(self.space.setting.cluster.node_groups[0], axes)
            self._within[axes] = frozenset((shape.ranks_per_node, *shape.ranks_per_level))
        return self._within[axes]


def is_searched(space: Space) -> bool:
    """Whether a search decides which groups share states."""
    return space.setting.framework.limits.grouped_states != () and not is_beside_hosts(space)


def grouped(usual: Sharding, sizes: Sequence[int]) -> Iterator[Sharding]:
    """Yield states as they are usually shared, then by groups of some sizes, the largest that update them."""
    yield usual
    every = [sizes if getattr(usual, state) > 1 else (1,) for state in STATES]
    for parameters, gradients, optimizer in product(*every):
        if optimizer % parameters or optimizer % gradients:
            continue
        parted = replace(usual, parameters=parameters, gradients=gradients, optimizer=optimizer)
        if parted != usual:
            yield parted


def undominated(
    placed: Sequence[tuple[Layout, PipelineProblem]],
) -> list[tuple[Layout, PipelineProblem]]:
    """Return the ways to place a layout of which no other is nowhere worse; of equal ones the first."""
    kept: list[tuple[tuple[int, ...], tuple[Layout, PipelineProblem]]] = []
    for layout, problem in placed:
        own = _figures(problem)
        if any(_nowhere_worse(other, own) for other, _ in kept):
            continue
        kept = [(other, way) for other, way in kept if not _nowhere_worse(own, other)]
        kept.append((own, (layout, problem)))
    return [way for _, way in kept]


def _nowhere_worse(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def _figures(problem: PipelineProblem) -> tuple[int, ...]:
    """Return all in which ways to place one layout differ: of less nothing gets worse."""
    parts = (
        *(_of_class(layers) for layers in problem.classes),
        _of_end(problem.first),
        _of_end(problem.last),
    )
    return (
        problem.transfer_ns,
        problem.gather_bucket_ns,
        problem.reduce_bucket_ns,
        problem.tied_ns,
        problem.barrier_ns,
        problem.base_bytes,
        *(figure for part in parts for figure in part),
    )


def _of_class(layers: LayerClass) -> tuple[int, ...]:
    passes = (figure for way in layers.options for figure in (way.forward_ns, way.backward_ns))
    return (layers.static_bytes, layers.optimizer_ns, layers.gather_ns, layers.reduce_ns, *passes)


def _of_end(part: FixedPart) -> tuple[int, ...]:
    return (
        part.static_bytes,
        part.optimizer_ns,
        part.gather_ns,
        part.reduce_ns,
        part.forward_ns,
        part.backward_ns,
    )
