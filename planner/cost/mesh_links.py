"""Everything that the ranks of a mesh send each other, timed on a node group's links."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

from planner.cluster import NodeGroup
from planner.cost.collective import CollectiveCosts
from planner.cost.collective_model import is_network
from planner.cost.geometry import axis_stride, expert_replica_axes, part_of, replica_axes
from planner.cost.group_bridge import GroupBridge
from planner.cost.group_shape import GroupShape
from planner.cost.tally import NOTHING, Cause, Family, Tally, booked
from planner.profile import Estimate
from planner.strategy import Mesh
from planner.units import Bytes
from planner.workload.operators import Collective, CollectivePass

NORM_BYTES: Final[Bytes] = 4
"""The squared gradient norm that all ranks exchange before an update."""
STEP_AXES: Final = (
    "data_parallel",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "expert_tensor_parallel",
)
"""Axes with a communicator of their own."""


def num_communicators(mesh: Mesh) -> int:
    """Return how many groups of more than one rank a rank of a mesh is in.

    A mixed scheme splits that of context parallel both ways.
    """
    groups: int = sum(getattr(mesh, axis) > 1 for axis in STEP_AXES)
    return groups + 2 * (1 < mesh.head_exchange < mesh.context_parallel)


def further_nodes(group: NodeGroup, mesh: Mesh) -> int:
    """Return over how many nodes beyond one a tensor-parallel group reaches, as networks join them."""
    per_node = group.devices_per_node
    joined = (level.devices for level in group.levels if not is_network(level, devices_per_node=per_node))
    devices = max(joined, default=1)
    reach = mesh.tensor_parallel * axis_stride(mesh, "tensor_parallel")
    return ceil(reach / devices) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshLinks:
    """The communication of one mesh, or of the stages of one that sit on this node group."""

    group: NodeGroup
    collectives: CollectiveCosts
    mesh: Mesh

    def layer_collective(self, op: CollectivePass) -> Estimate:
        """Return the time of a collective inside a layer, over the ranks of its axis."""
        shape = self.layer_shape(op)
        return self.collectives.seconds(op.operation, payload_bytes=op.payload_bytes, shape=shape)

    def layer_shape(self, op: CollectivePass) -> GroupShape:
        """Return where the ranks of a collective inside a layer sit."""
        size = int(getattr(self.mesh, op.axis)) if op.ranks is None else op.ranks
        stride = axis_stride(self.mesh, op.axis) * op.step
        if op.operation is Collective.SEND_RECEIVE:
            return self._neighbours(size, stride)
        return self.collectives.shape(size=size, stride=stride)

    def between_replicas(self, operation: Collective, payload: Bytes, size: int, step: int) -> Estimate:
        """Return the time of a collective over ``size`` replicas that are ``step`` replicas apart."""
        shape = self.collectives.spread(part_of(replica_axes(self.mesh), size=size, step=step))
        return self.collectives.seconds(operation, payload_bytes=payload, shape=shape)

    def between_expert_replicas(
        self, operation: Collective, payload: Bytes, size: int, step: int
    ) -> Estimate:
        """Return the time of a collective over ``size`` replicas of an expert, ``step`` of them apart."""
        shape = self.collectives.spread(part_of(expert_replica_axes(self.mesh), size=size, step=step))
        return self.collectives.seconds(operation, payload_bytes=payload, shape=shape)

    def to_next_stage(self, payload: Bytes, *, scattered: bool) -> Tally:
        """Return one activation's way to the next stage, over the slowest boundary.

        Scattered, each tensor-parallel rank sends its share, which is gathered on arrival: every rank
        holds the same activation, so sending all of it takes the slow links t times for nothing
        (Narayanan et al., SC21, section 4.1).
        """
        if self.mesh.pipeline_parallel == 1:
            return NOTHING
        return self._between_stages(payload, scattered=scattered, send=self._send)

    def from_other_group(self, payload: Bytes, *, scattered: bool, bridge: GroupBridge) -> Tally:
        """Return one activation's way from a stage on another node group; scattered as in one."""
        return self._between_stages(payload, scattered=scattered, send=bridge.send)

    def _between_stages(self, payload: Bytes, *, scattered: bool, send: Callable[[Bytes], Tally]) -> Tally:
        ranks = self.mesh.tensor_parallel
        if not scattered or ranks == 1:
            return send(payload)
        group = self.collectives.shape(size=ranks, stride=axis_stride(self.mesh, "tensor_parallel"))
        gather = self.collectives.seconds(Collective.ALL_GATHER, payload_bytes=payload, shape=group)
        return send(payload / ranks) + booked(gather, cause=Cause.PIPELINE, family=Family.COLLECTIVE)

    def _send(self, payload: Bytes) -> Tally:
        shape = self._neighbours(self.mesh.pipeline_parallel, axis_stride(self.mesh, "pipeline_parallel"))
        estimate = self.collectives.seconds(Collective.SEND_RECEIVE, payload_bytes=payload, shape=shape)
        return booked(estimate, cause=Cause.PIPELINE, family=Family.COLLECTIVE)

    def between_ends(self, payload: Bytes) -> Tally:
        """Return the all-reduce of a tied embedding's gradients between first and last stage."""
        stages = self.mesh.pipeline_parallel
        if stages == 1 or not payload:
            return NOTHING
        # The stages between the ends are silent.
        in_stage = axis_stride(self.mesh, "pipeline_parallel")
        shape = self.collectives.shape(size=2, stride=in_stage * (stages - 1), talking=in_stage)
        estimate = self.collectives.seconds(Collective.ALL_REDUCE, payload_bytes=payload, shape=shape)
        return booked(estimate, cause=Cause.PIPELINE, family=Family.COLLECTIVE)

    def gradient_norm(self) -> Tally:
        """Return the exchange of the gradient norm between all ranks."""
        if self.mesh.world_size == 1:
            return NOTHING
        shape = self.collectives.shape(size=self.mesh.world_size, stride=1)
        norm = self.collectives.seconds(Collective.ALL_REDUCE, payload_bytes=NORM_BYTES, shape=shape)
        return booked(norm, cause=Cause.OVERHEAD, family=Family.COLLECTIVE)

    def _neighbours(self, size: int, stride: int) -> GroupShape:
        """Return the shape of two neighbours among ``size`` ranks, over their slowest boundary."""
        domains = (self.group.devices_per_node, *(level.devices for level in self.group.levels))
        apart = max([stride, *(devices for devices in domains if devices < stride * size)])
        return self.collectives.shape(size=2, stride=apart)
