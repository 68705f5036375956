"""The cost model of one request: from a layout to the pipeline problem that it poses.

Layer costs are shared: layouts with the same cut of a layer read the same entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from planner.cluster import NodeGroup
from planner.cost.collective import CollectiveCosts
from planner.cost.compute import KernelCosts
from planner.cost.data_parallel import ReplicaCosts
from planner.cost.geometry import axis_stride, replica_stride
from planner.cost.group_shape import GroupShape, group_shape
from planner.cost.layer import LayerClock, LayerCost
from planner.cost.memory import (
    FRAGMENTATION_FRACTION,
    StateBytes,
    buffer_bytes,
    framework_bytes,
    state_bytes,
)
from planner.cost.pipeline import FixedPart, LayerOption, PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.cost.tally import NOTHING, Cause, Family, Tally, booked, constant, total
from planner.legality import Setting
from planner.profile import Estimate, Profile
from planner.strategy import Batch, Layout, Mesh, Recompute, Schedule, ScheduleName, Sharding
from planner.units import Bytes, FlopsPerSecond, Seconds
from planner.workload.layers import Cut, Layer
from planner.workload.operators import Collective, CollectivePass

STEP_OVERHEAD_SECONDS: Final[Seconds] = 4e-3
"""Host work between two steps: loss and norm read back, scheduler, data hand-over (a stated guess)."""
STEP_OVERHEAD_ERROR: Final = 0.7
ROUNDING_NS: Final = 2
"""Most by which rounding a layer's passes one by one exceeds rounding sums of them."""
NORM_BYTES: Final[Bytes] = 4
"""The squared gradient norm that all ranks exchange before an update."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartCost:
    """What counted layers, or one end of the chain, cost one device besides recomputation choices.

    ``forward`` and ``backward`` are per micro-batch and hold what passes show of sharding;
    ``optimizer``, ``gather`` and ``reduce`` are per step.
    """

    forward: Tally
    backward: Tally
    saved_bytes: Bytes
    working_bytes: Bytes
    logits_bytes: Bytes
    parameters: int
    states: StateBytes
    optimizer: Tally
    gather: Tally
    reduce: Tally


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutCosts:
    """Every figure behind a layout's problem, with its causes and errors.

    ``layers`` holds one entry per recomputation option; ``first`` and ``last`` the chain's ends.
    ``between_passes`` is what every pass of a pipelined stage takes besides its layers.
    """

    layers: tuple[PartCost, ...]
    first: PartCost
    last: PartCost
    between_passes: Tally
    transfer: Tally
    barrier: Tally
    tied: Tally
    base_bytes: Bytes
    buffer_bytes: Bytes
    capacity_bytes: Bytes


@dataclass(kw_only=True, eq=False)
class CostModel:
    """Prices layouts of one setting on one node group."""

    setting: Setting
    group: NodeGroup
    profiles: Sequence[Profile]
    memory_fraction: float
    _layers: dict[tuple[object, ...], LayerCost] = field(default_factory=dict, init=False)
    _parts: dict[tuple[object, ...], PartCost] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Open the measurements of the group's device and links."""
        job = self.setting.job
        self.kernels = KernelCosts(self.group.device, self.profiles, job.precision)
        self.collectives = CollectiveCosts(self.group, self.profiles)
        self.widths = self.setting.framework.widths(job.precision, moment_values=job.optimizer.moment_values)
        self._members = _members(self.setting)

    @property
    def peak_flops_per_second(self) -> FlopsPerSecond:
        """The datasheet peak at the job's precision; the best measured rate where no peak is known."""
        peaks, precision = self.group.device.peak_flops_per_second, self.setting.job.precision
        return peaks.get(precision.value) or self.kernels.best_flops_per_second()

    # --- the problem ---------------------------------------------------------------------------

    def problem(self, layout: Layout) -> PipelineProblem:
        """Return what the search has to decide inside a layout."""
        costs = self.costs(layout)
        framework, schedule = self.setting.framework, layout.schedule
        first_option = costs.layers[0]
        return PipelineProblem(
            shape=pipeline_shape(layout),
            num_layers=self.setting.num_layers,
            options=tuple(
                LayerOption(
                    recompute=recompute,
                    forward_ns=part.forward.nanoseconds,
                    backward_ns=part.backward.nanoseconds,
                    saved_bytes=_fragmented(part.saved_bytes),
                    working_bytes=_fragmented(part.working_bytes),
                )
                for recompute, part in zip(layout.recompute, costs.layers, strict=True)
            ),
            static_bytes=ceil(first_option.states.total),
            optimizer_ns=first_option.optimizer.nanoseconds,
            gather_ns=first_option.gather.nanoseconds,
            reduce_ns=first_option.reduce.nanoseconds,
            every=FixedPart(
                forward_ns=costs.between_passes.nanoseconds, backward_ns=costs.between_passes.nanoseconds
            ),
            first=_fixed(costs.first),
            last=_fixed(costs.last),
            transfer_ns=costs.transfer.nanoseconds,
            transfer_blocks=framework.transfer_blocks(schedule.name),
            gather_overlaps=framework.overlaps_parameter_gather,
            reduce_overlaps=framework.overlaps_gradient_reduction,
            gather_bucket_ns=first_option.forward.nanoseconds,
            reduce_bucket_ns=first_option.reduce.nanoseconds,
            barrier_ns=costs.barrier.nanoseconds,
            tied_ns=costs.tied.nanoseconds,
            base_bytes=ceil(costs.base_bytes) + _fragmented(costs.buffer_bytes),
            limit_bytes=int(costs.capacity_bytes * self.memory_fraction),
            empty_ends=framework.empty_ends,
        )

    def floor_ns(self, mesh: Mesh, batch: Batch) -> int:
        """Return a step time that no plan on a mesh with a batch undercuts, by its layers' work alone.

        Work is spread over stages as evenly as fractions allow, nothing is recomputed and no
        replica is waited for. Stage i also waits for the passes of the i stages before it, which
        hold at least one layer each (the first one perhaps only the embedding).
        """
        layout = Layout(
            mesh=mesh, batch=batch, schedule=Schedule(), sharding=Sharding(), recompute=(Recompute(),)
        )
        cut = self.cut(layout)
        layer, *ends = (
            self._layer(member, cut, Recompute(), mesh)
            for member in (*self._members["decoder"], *self._members["first"], *self._members["last"])
        )
        each = _floor_ns(layer)
        work = self.setting.num_layers * each + sum(_floor_ns(end) for end in ends)
        stages = mesh.pipeline_parallel
        waits = each * (stages - 1) * (stages - 2) // 2
        return (batch.num_micro_batches * work + waits) // stages

    def costs(self, layout: Layout) -> LayoutCosts:
        """Return the figures behind a layout's problem, with their causes."""
        mesh = layout.mesh
        cut = self.cut(layout)
        replicas = self._replica_costs(layout)
        layers = tuple(
            self._part("decoder", recompute, cut, replicas, mesh) for recompute in layout.recompute
        )
        first = self._part("first", Recompute(), cut, replicas, mesh)
        last = self._part("last", Recompute(), cut, replicas, mesh)
        biggest = max(layers[0].parameters, first.parameters, last.parameters)
        return LayoutCosts(
            layers=layers,
            first=first,
            last=last,
            between_passes=self._between_passes(mesh),
            transfer=self._transfer(layout, cut),
            barrier=self._barrier(mesh),
            tied=self._tied_reduction(cut, mesh),
            base_bytes=framework_bytes(num_groups=_num_groups(mesh)),
            buffer_bytes=buffer_bytes(biggest, widths=self.widths, sharding=layout.sharding),
            capacity_bytes=self.group.device.memory_bytes,
        )

    def cut(self, layout: Layout) -> Cut:
        """Return how every layer is cut in a layout."""
        job, mesh = self.setting.job, layout.mesh
        return Cut(
            micro_batch_size=layout.batch.micro_batch_size,
            sequence_length=job.sequence_length,
            tensor_parallel=mesh.tensor_parallel,
            sequence_parallel=mesh.sequence_parallel and mesh.tensor_parallel > 1,
            context_parallel=mesh.context_parallel,
            attention=job.attention,
            element_bytes=job.precision.activation_bytes,
            vocabulary_multiple=self.setting.framework.vocabulary_multiple,
        )

    # --- parts ---------------------------------------------------------------------------------

    def _part(
        self, name: str, recompute: Recompute, cut: Cut, replicas: ReplicaCosts, mesh: Mesh
    ) -> PartCost:
        """Return one counted layer ("decoder"), or one end of the chain ("first", "last").

        A tied head on a stage of its own holds a copy of the embedding.
        """
        tied = self._tied_parameters(cut, mesh) if name == "last" else 0
        strides = (axis_stride(mesh, "tensor_parallel"), axis_stride(mesh, "context_parallel"))
        key = (
            name,
            recompute,
            cut,
            replicas.sharding,
            replicas.replicas,
            replica_stride(mesh),
            strides,
            tied,
        )
        if key not in self._parts:
            layers = [self._layer(layer, cut, recompute, mesh) for layer in self._members[name]]
            self._parts[key] = self._sum_of_layers(layers, replicas, tied=tied)
        return self._parts[key]

    def _layer(self, layer: Layer, cut: Cut, recompute: Recompute, mesh: Mesh) -> LayerCost:
        strides = (axis_stride(mesh, "tensor_parallel"), axis_stride(mesh, "context_parallel"))
        key = (layer, cut, recompute, strides)
        if key not in self._layers:
            clock = LayerClock(
                kernels=self.kernels,
                collectives=lambda op: self._axis_collective(op, mesh),
                framework=self.setting.framework,
            )
            self._layers[key] = clock.cost(layer, cut, recompute)
        return self._layers[key]

    def _axis_collective(self, op: CollectivePass, mesh: Mesh) -> Estimate:
        size, stride = int(getattr(mesh, op.axis)), axis_stride(mesh, op.axis)
        if op.operation is Collective.SEND_RECEIVE:
            shape = self._neighbours(size, stride)
        else:
            shape = group_shape(self.group, size=size, stride=stride)
        return self.collectives.seconds(op.operation, payload_bytes=op.payload_bytes, shape=shape)

    def _neighbours(self, size: int, stride: int) -> GroupShape:
        """Return the shape of two neighbours among ``size`` ranks, over their slowest boundary."""
        crosses = stride * size > self.group.devices_per_node
        apart = max(stride, self.group.devices_per_node) if crosses else stride
        return group_shape(self.group, size=2, stride=apart)

    def _sum_of_layers(self, layers: Sequence[LayerCost], replicas: ReplicaCosts, *, tied: int) -> PartCost:
        """Return layers that run one after the other; ``tied`` parameters come on top of their own."""
        parameters = sum(layer.parameters for layer in layers) + tied
        forward = total(layer.forward for layer in layers)
        backward = total(layer.whole_backward for layer in layers)
        return PartCost(
            forward=forward + replicas.in_forward(parameters, forward),
            backward=backward + replicas.in_backward(parameters, backward),
            saved_bytes=sum(layer.saved_bytes for layer in layers),
            working_bytes=max((layer.working_bytes for layer in layers), default=0.0),
            logits_bytes=sum(layer.logits_bytes for layer in layers),
            parameters=parameters,
            states=state_bytes(parameters, widths=self.widths, sharding=replicas.sharding),
            optimizer=self._optimizer(parameters, replicas),
            gather=replicas.gather_per_step(parameters),
            reduce=replicas.reduction_per_step(parameters),
        )

    def _optimizer(self, parameters: int, replicas: ReplicaCosts) -> Tally:
        """Return the norm and the update of one device's shard of the parameters.

        Gradients are read twice (norm, update), states read and written, the parameter written.
        """
        if not parameters:
            return NOTHING
        widths = self.widths
        width = 2 * widths.gradient + 2 * widths.optimizer + widths.parameter
        shard = ceil(parameters / replicas.sharding.optimizer)
        estimate = self.kernels.optimizer_step(shard, width)
        return booked(estimate, cause=Cause.OPTIMIZER, family=Family.OPTIMIZER)

    # --- communication between parts -----------------------------------------------------------

    def _replica_costs(self, layout: Layout) -> ReplicaCosts:
        mesh = layout.mesh
        stride = replica_stride(mesh)

        def clock(operation: Collective, payload: Bytes, size: int, step: int) -> Estimate:
            shape = group_shape(self.group, size=size, stride=stride * step)
            return self.collectives.seconds(operation, payload_bytes=payload, shape=shape)

        return ReplicaCosts(
            clock=clock,
            replicas=mesh.data_parallel * mesh.context_parallel,
            sharding=layout.sharding,
            widths=self.widths,
            buckets=self.setting.framework.keeps_master_weights,
        )

    def _transfer(self, layout: Layout, cut: Cut) -> Tally:
        """Return one activation's way to the next stage, over the slowest boundary."""
        mesh = layout.mesh
        if mesh.pipeline_parallel == 1:
            return NOTHING
        payload = float(cut.element_bytes * cut.sharded_tokens * self.setting.decoder.hidden)
        shape = self._neighbours(mesh.pipeline_parallel, axis_stride(mesh, "pipeline_parallel"))
        estimate = self.collectives.seconds(Collective.SEND_RECEIVE, payload_bytes=payload, shape=shape)
        return booked(estimate, cause=Cause.PIPELINE, family=Family.COLLECTIVE)

    def _between_passes(self, mesh: Mesh) -> Tally:
        if mesh.pipeline_parallel == 1:
            return NOTHING
        seconds = self.setting.framework.pipeline_pass_seconds
        return constant(seconds, cause=Cause.PIPELINE, relative_error=STEP_OVERHEAD_ERROR)

    def _barrier(self, mesh: Mesh) -> Tally:
        """Return what every step waits for: the gradient norm of all ranks, and the host."""
        overhead = constant(STEP_OVERHEAD_SECONDS, cause=Cause.OVERHEAD, relative_error=STEP_OVERHEAD_ERROR)
        if mesh.world_size == 1:
            return overhead
        shape = group_shape(self.group, size=mesh.world_size, stride=1)
        norm = self.collectives.seconds(Collective.ALL_REDUCE, payload_bytes=NORM_BYTES, shape=shape)
        return overhead + booked(norm, cause=Cause.OVERHEAD, family=Family.COLLECTIVE)

    def _tied_parameters(self, cut: Cut, mesh: Mesh) -> int:
        if mesh.pipeline_parallel == 1:
            return 0
        return sum(layer.tied_local_parameters(cut) for layer in self._members["last"])

    def _tied_reduction(self, cut: Cut, mesh: Mesh) -> Tally:
        """Return the all-reduce of a tied embedding's gradients between first and last stage."""
        tied = self._tied_parameters(cut, mesh)
        if not tied:
            return NOTHING
        stride = axis_stride(mesh, "pipeline_parallel") * (mesh.pipeline_parallel - 1)
        payload = float(self.widths.gradient * tied)
        shape = group_shape(self.group, size=2, stride=stride)
        estimate = self.collectives.seconds(Collective.ALL_REDUCE, payload_bytes=payload, shape=shape)
        return booked(estimate, cause=Cause.PIPELINE, family=Family.COLLECTIVE)


def _members(setting: Setting) -> dict[str, tuple[Layer, ...]]:
    """Return the counted layer and the layers of both ends of the chain."""
    layers = [
        run.layer
        for run in setting.workload.runs
        for _ in range(run.count if run.layer.kind != "decoder" else 1)
    ]
    middle = [layer.kind for layer in layers].index("decoder")
    return {
        "first": tuple(layers[:middle]),
        "decoder": (layers[middle],),
        "last": tuple(layers[middle + 1 :]),
    }


def pipeline_shape(layout: Layout) -> PipelineShape:
    """Return what fixes the order of passes in a layout."""
    name = layout.schedule.name
    return PipelineShape(
        schedule=name,
        num_stages=layout.mesh.pipeline_parallel,
        virtual_stages=layout.schedule.virtual_stages,
        num_micro_batches=layout.batch.num_micro_batches,
        group_size=layout.schedule.interleave_group_size if name is ScheduleName.INTERLEAVED else None,
    )


def _floor_ns(layer: LayerCost) -> int:
    """Return both passes of a layer, rounded down: never above what a problem counts for them."""
    return max(layer.forward.nanoseconds + layer.backward.nanoseconds - ROUNDING_NS, 0)


def _fixed(part: PartCost) -> FixedPart:
    return FixedPart(
        forward_ns=part.forward.nanoseconds,
        backward_ns=part.backward.nanoseconds,
        saved_bytes=_fragmented(part.saved_bytes),
        working_bytes=_fragmented(part.working_bytes),
        static_bytes=ceil(part.states.total),
        optimizer_ns=part.optimizer.nanoseconds,
        gather_ns=part.gather.nanoseconds,
        reduce_ns=part.reduce.nanoseconds,
    )


def _fragmented(size: Bytes) -> int:
    """Return reserved bytes for transient tensors of so many allocated bytes."""
    return ceil(size * (1 + FRAGMENTATION_FRACTION))


def _num_groups(mesh: Mesh) -> int:
    """Return how many communicators a rank is in."""
    axes = ("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel")
    return sum(getattr(mesh, axis) > 1 for axis in axes)
