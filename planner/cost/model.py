"""The cost model of one request: from a layout to the pipeline problem that it poses.

Costs are shared: layouts with the same cut of a layer read the same entry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from math import ceil
from typing import Final

from planner.cluster import NodeGroup
from planner.cost.collective import CollectiveCosts
from planner.cost.compute import KernelCosts
from planner.cost.corrections import Corrections, Kind
from planner.cost.geometry import EXPERT_AXES, axis_stride
from planner.cost.ground import Crossing, Ground, Member, cut_key, members_of, pipeline_shape
from planner.cost.group_bridge import GroupBridge
from planner.cost.host_budget import Nodes, binding_hosts, states_per_node
from planner.cost.host_costs import UnitHost, hosted, measured_host, unit_host
from planner.cost.layer import CollectiveClock, KernelClock, LayerClock, LayerPasses, model_flops
from planner.cost.layout_costs import HostPart, LayoutCosts, PartCost, Run, fixed_part, layer_class
from planner.cost.ledger import LAUNCH_RELATIVE_ERROR, Amount, Ledger, Tallies, Timed
from planner.cost.machine_facts import MachineFacts
from planner.cost.memory import GATHERED_LAYERS, StateBytes, buffer_bytes, framework_bytes
from planner.cost.mesh_links import MeshLinks, further_nodes, num_communicators
from planner.cost.offload import HostCosts
from planner.cost.pipeline import FixedPart, LayerClass, PipelineProblem
from planner.cost.replicas import Replicas, replicas_key, replicas_of
from planner.cost.shared_cores import slowdown, slowed
from planner.cost.shared_part import shared_part
from planner.cost.split_backward import SplitBackward, split_backward
from planner.cost.state_passes import COPIED, StatePasses
from planner.cost.states import StateCosts
from planner.cost.tally import NOTHING, Cause, Tally, constant, least
from planner.cost.withheld import withheld_bytes
from planner.formats import attention_precision, datasheet_peak
from planner.framework import StateFormats
from planner.legality import Setting
from planner.optimizers import WeightShapes
from planner.profile import Estimate, Profile
from planner.strategy import (
    LayerWay,
    Layout,
    Mesh,
    Recompute,
    ScheduleName,
    Sharding,
)
from planner.units import NANOSECONDS_PER_SECOND, Bytes, FlopsPerSecond, Seconds
from planner.workload.frozen import BASE_BYTES
from planner.workload.layers import EMBEDDING, Cut, Layer
from planner.workload.operators import Phase
from planner.workload.weights import Holding, Holdings, holdings

HOST_ERROR: Final = 0.7
"""Relative error of times that the host spends: they differ between hosts and versions."""
ROUNDING: Final = 1e-9
"""Relative margin for sums in floating point."""

DENSE_AXES: Final = ("tensor_parallel", "context_parallel")
"""Axes over which every layer exchanges something."""
LayerKey = tuple[Layer, Cut, tuple[int, ...], Seconds]
"""What decides the passes of a layer: how it is cut, how far apart its ranks are, what launches take more."""


@dataclass(kw_only=True, eq=False)
class CostModel:
    """Prices layouts of one setting on one node group."""

    setting: Setting
    group: NodeGroup
    profiles: Sequence[Profile]
    memory_fraction: float
    num_stages: int | None = None
    """How many of a plan's stages sit on this group where the rest sits on others; None means all."""
    like: "CostModel | None" = None
    """A model of the same job on the same devices by a program of another pace: measurements are shared."""
    corrected: Corrections | None = None
    """Corrections other than those of the profiles."""
    _passes: dict[tuple[int, ...], Mapping[Member, tuple[LayerPasses[Tally], ...]]] = field(
        default_factory=dict, init=False
    )
    _layer_passes: dict[LayerKey, LayerPasses[Tally]] = field(default_factory=dict, init=False)
    _axes: dict[Layer, tuple[str, ...]] = field(default_factory=dict, init=False)
    _runs: dict[tuple[object, ...], Run] = field(default_factory=dict, init=False)
    _parts: dict[tuple[object, ...], PartCost] = field(default_factory=dict, init=False)
    _held: dict[tuple[object, ...], Holdings] = field(default_factory=dict, init=False)
    _grounds: dict[tuple[Mesh, int, bool], Ground] = field(default_factory=dict, init=False)
    _replicas: dict[tuple[object, ...], Replicas] = field(default_factory=dict, init=False)
    _crossings: dict[tuple[Mesh, Bytes, Bytes], Crossing] = field(default_factory=dict, init=False)
    shared: dict[str, object] = field(default_factory=dict, init=False)
    """What searches over this model's costs leave for those after them."""

    def __post_init__(self) -> None:
        """Open the measurements of the group's device and links."""
        job = self.setting.job
        self.facts = MachineFacts.of(self.group.device, self.profiles)
        like = self.like
        self.kernels: KernelCosts = (
            like.kernels if like else KernelCosts.opened(self.group.device, self.profiles, job.precision)
        )
        self.collectives: CollectiveCosts = (
            like.collectives if like else CollectiveCosts.opened(self.group, self.profiles)
        )
        host = measured_host(self.setting.framework, self.group.device, self.profiles, kernels=self.kernels)
        if self.corrected is not None:
            self.kernels = self.kernels.corrected(self.corrected)
            self.collectives = self.collectives.corrected(self.corrected)
        self.corrections = self.kernels.corrections
        self.setting = _paced(self.setting, self.facts, self.corrections)
        self.widths = self.setting.framework.widths(
            job.precision, moment_values=job.optimizer.moment_values, formats=StateFormats.of(job)
        )
        self.host = host and host.scaled(self.corrections.factor(Kind.HOST))
        self.setting = hosted(self.setting, self.host)
        self.states = self._state_costs()
        self.hosts: HostCosts | None = HostCosts.of(self.group, self.setting.framework, self.widths)
        self.members = members_of(self.setting)
        self.attending = frozenset(
            layer for layers in self.members.values() for layer in layers if _splits_attention(layer)
        )

    @property
    def peak_flops_per_second(self) -> FlopsPerSecond:
        """The datasheet peak at the job's precision; the best measured rate where no peak is known."""
        peak = datasheet_peak(self.group.device, self.setting.job.precision)
        return peak or self.kernels.best_flops_per_second()

    # --- the problem ---------------------------------------------------------------------------

    def problem(self, layout: Layout, *, others: Sequence[Layout] = ()) -> PipelineProblem:
        """Return what the search has to decide inside a layout.

        With ``others`` no plan of it takes longer or holds more than the same in any of the layouts: see
        `costs`.
        """
        costs = self.costs(layout, others=others)
        framework, schedule = self.setting.framework, layout.schedule
        hosts = self._binding_hosts(layout, costs)
        return PipelineProblem(
            shape=pipeline_shape(layout),
            classes=self._classes(layout, costs, hosts_bind=bool(hosts)),
            sequence=self.setting.body.sequence,
            every=self.every(layout),
            first=fixed_part(costs.first, costs),
            last=fixed_part(costs.last, costs),
            transfer_ns=costs.transfer.nanoseconds,
            transfer_blocks=framework.transfer_blocks(schedule.name),
            gather_overlaps=framework.overlaps_parameter_gather,
            reduce_overlaps=framework.reduction_overlaps(layout.sharding.zero_stage),
            gather_bucket_ns=max(part.forward.nanoseconds for part in costs.layers),
            reduce_bucket_ns=max(part.reduce.nanoseconds for part in costs.layers),
            barrier_ns=costs.barrier.nanoseconds,
            tied_ns=costs.tied.nanoseconds,
            base_bytes=ceil(costs.base_bytes + costs.withheld_bytes) + costs.reserved(costs.buffer_bytes),
            limit_bytes=int(costs.capacity_bytes * self.memory_fraction),
            empty_ends=framework.empty_ends,
            hosts=hosts,
            host_limit_bytes=self.host_limit_bytes,
            hosts_overflow=bool(hosts) and self.host_bytes_per_node(layout) > self.host_limit_bytes,
        )

    def every(self, layout: Layout) -> FixedPart:
        """Return what every pass of a layout takes besides its layers: all that its schedule changes of it.

        Schedules that split backward passes change more.
        """
        between = self.between_passes(layout.mesh, layout.schedule.name).times(self._slowdown(layout))
        return _between(between.nanoseconds, is_split=layout.schedule.name.splits_backward)

    @property
    def shares_cores(self) -> bool:
        """Whether ranks share cores, so that what a layer takes depends on the schedule."""
        return self.host is not None and max(self.host.threads_per_core, default=1.0) > 1.0

    def _slowdown(self, layout: Layout) -> float:
        """Return how many times as long work takes on shared cores."""
        return slowdown(layout, threads_per_core=self.host.threads_per_core if self.host else ())

    def host_bytes_per_node(self, layout: Layout) -> Bytes:
        """Return the states that all stages keep on hosts, per node: on average where nodes differ."""
        here, devices_per_node = self._here(layout.mesh), self.group.devices_per_node
        return states_per_node(self.costs(layout), self.setting.body, here, devices_per_node=devices_per_node)

    @property
    def host_limit_bytes(self) -> int:
        """What the stages of a node may keep on its host together."""
        host = self.group.host
        return int(host.memory_bytes * self.memory_fraction) if host else 0

    def _binding_hosts(self, layout: Layout, costs: LayoutCosts) -> Nodes:
        """Return the kinds of nodes whose hosts may be too small for what a layout keeps there."""
        if not layout.offloads:
            return ()
        return binding_hosts(
            costs,
            self._here(layout.mesh),
            most_kept=layout.batch.num_micro_batches,
            num_layers=self.setting.num_layers,
            devices_per_node=self.group.devices_per_node,
            limit_bytes=self.host_limit_bytes,
        )

    def _classes(self, layout: Layout, costs: LayoutCosts, *, hosts_bind: bool) -> tuple[LayerClass, ...]:
        """Return each class of counted layers with its ways to run."""
        ways = layout.ways
        size = len(ways)
        return tuple(
            layer_class(ways, costs.layers[start : start + size], costs, hosts_bind=hosts_bind)
            for start in range(0, len(costs.layers), size)
        )

    def ideal_ns(self, num_devices: int) -> int:
        """Return a step time that no plan undercuts: all useful FLOP at the best rate of any kernel."""
        setting, pace = self.setting, self.setting.framework.pace
        flops = model_flops(
            [(run.layer, run.count) for run in setting.workload.runs],
            sequence_length=setting.job.sequence_length or 1,
            samples=setting.job.global_batch_size,
        )
        fastest = min(
            1.0, pace.products, pace.attention_ampere, pace.attention_hopper, pace.unfused_attention
        )
        seconds = flops / num_devices / self.kernels.best_flops_per_second() * fastest
        return int(seconds * NANOSECONDS_PER_SECOND * (1 - ROUNDING))

    def passes(self, mesh: Mesh, micro_batch_size: int) -> Mapping[Layer, LayerPasses[Tally]]:
        """Return the passes of every layer on a mesh."""
        cut = self.cut(mesh, micro_batch_size)
        links = self.links(mesh)
        members = self._cut_members(cut, links, cut_key(links.mesh, micro_batch_size))
        return {
            layer: passes
            for name, layers in self.members.items()
            for layer, passes in zip(layers, members[name], strict=True)
        }

    def costs(self, layout: Layout, *, others: Sequence[Layout] = ()) -> LayoutCosts:
        """Return the figures behind a layout's problem, with their causes.

        ``others`` number the same ranks differently, with layers cut and placed alike, or share the same
        states in groups no larger: each figure is then the least of all.
        """
        schedule = layout.schedule.name
        ground = self.ground(layout.mesh, layout.batch.micro_batch_size, ends_meet=schedule.folds)
        replicas = self._replicas_of(layout, others)
        crossings = [self._crossing(other.mesh, ground) for other in others if other.mesh != layout.mesh]
        part_of = partial(self._part, ground=ground, replicas=replicas, layout=layout)
        layers = tuple(
            part_of(number, way) for number, _ in enumerate(self.setting.body.classes) for way in layout.ways
        )
        first, last = part_of("first", LayerWay()), part_of("last", LayerWay())
        parts = (*layers, first, last)
        footprint, stages = self.setting.framework.footprint, layout.mesh.pipeline_parallel
        found = LayoutCosts(
            layers=layers,
            first=first,
            last=last,
            between_passes=self.between_passes(layout.mesh, schedule),
            transfer=least((ground.transfer, *(each.transfer for each in crossings))),
            barrier=ground.barrier,
            tied=least((ground.tied, *(each.tied for each in crossings))),
            base_bytes=framework_bytes(num_groups=num_communicators(layout.mesh), footprint=footprint),
            buffer_bytes=footprint.buffer_bytes
            + self._buffer_bytes(layout.sharding, parts, replicas)
            + max(part.staged_bytes for part in parts),
            withheld_bytes=withheld_bytes(
                [ground.members[number] for number, _ in enumerate(self.setting.body.classes)],
                num_layers=self.setting.num_layers,
                num_stages=stages,
                num_micro_batches=layout.batch.num_micro_batches,
                footprint=footprint,
            ),
            capacity_bytes=self.group.device.memory_bytes,
            fragmentation_fraction=footprint.fragmentation(stages),
            is_split=schedule.splits_backward,
        )
        shared = self._slowdown(layout)
        return found if shared == 1.0 else slowed(found, shared)

    @staticmethod
    def _buffer_bytes(sharding: Sharding, parts: Sequence[PartCost], replicas: Replicas) -> Bytes:
        """Return what gathers and reductions have on the device for a while."""
        gathered = max(part.gathered_bytes for part in parts)
        trained = max(part.trained_parameters for part in parts)
        wire = replicas.dense.wire
        staged = wire.staged(
            gathered_bytes=gathered if sharding.parameters > 1 else 0.0,
            trained=trained,
            layers=GATHERED_LAYERS,
        )
        return staged + buffer_bytes(
            gathered_bytes=gathered,
            trained_parameters=trained,
            gradient_bytes=wire.buffered_gradient,
            sharding=sharding,
        )

    def _replicas_of(self, layout: Layout, others: Sequence[Layout]) -> Replicas:
        """Return how replicas are kept equal, no dearer than in any of the other layouts."""
        ways = [(self.links(each.mesh), each.sharding) for each in (layout, *others)]
        key = tuple(replicas_key(links.mesh, sharding) for links, sharding in ways)
        if key not in self._replicas:
            self._replicas[key] = self.replicas(*ways[0], others=ways[1:])
        return self._replicas[key]

    def replicas(
        self, links: MeshLinks, sharding: Sharding, *, others: Sequence[tuple[MeshLinks, Sharding]] = ()
    ) -> Replicas:
        """Return how the replicas of a mesh are kept equal, no dearer than in others; see `replicas_of`."""
        return replicas_of(
            links,
            sharding,
            framework=self.setting.framework,
            widths=self.widths,
            precision=self.setting.job.precision,
            moves=partial(self.kernels.moved, COPIED[0], phase=Phase.FORWARD),
            contention_fraction=self.facts.contention_fraction,
            others=others,
        )

    def _crossing(self, mesh: Mesh, ground: Ground) -> Crossing:
        """Return what stages send each other on a mesh that differs from that of a ground in its order."""
        key = (mesh, ground.activation_bytes, ground.tied_bytes)
        if key not in self._crossings:
            links = self.links(mesh)
            self._crossings[key] = Crossing(
                transfer=links.to_next_stage(ground.activation_bytes, scattered=ground.scatters),
                tied=links.between_ends(ground.tied_bytes),
            )
        return self._crossings[key]

    def cut(self, mesh: Mesh, micro_batch_size: int) -> Cut:
        """Return how every layer is cut on a mesh."""
        job = self.setting.job
        return Cut(
            micro_batch_size=micro_batch_size,
            sequence_length=job.sequence_length or 1,
            tensor_parallel=mesh.tensor_parallel,
            sequence_parallel=mesh.sequence_parallel and mesh.tensor_parallel > 1,
            context_parallel=mesh.context_parallel,
            head_exchange=mesh.head_exchange,
            gathers_keys=mesh.gathers_keys,
            expert_parallel=mesh.expert_parallel,
            expert_tensor_parallel=mesh.expert_tensor_parallel,
            expert_imbalance=job.expert_imbalance,
            attention=job.attention,
            element_bytes=job.precision.activation_bytes,
            vocabulary_multiple=self.setting.framework.vocabulary_multiple,
            keeping=self.setting.framework.keeping(job.precision),
            splits_vocabulary=self.setting.framework.splits_vocabulary,
        )

    # --- parts ---------------------------------------------------------------------------------

    def ground(self, mesh: Mesh, micro_batch_size: int, *, ends_meet: bool = False) -> Ground:
        """Return what all layouts of a mesh with a micro-batch size share.

        Where the ``ends_meet`` the last chunk is on the first one's stage, and ties nothing over stages.
        """
        key = (mesh, micro_batch_size, ends_meet)
        if key not in self._grounds:
            self._grounds[key] = self._make_ground(mesh, micro_batch_size, ends_meet=ends_meet)
        return self._grounds[key]

    def _make_ground(self, mesh: Mesh, micro_batch_size: int, *, ends_meet: bool) -> Ground:
        cut = self.cut(mesh, micro_batch_size)
        links = self.links(mesh)
        key = cut_key(links.mesh, micro_batch_size)
        tied = self._tied_parameters(cut) if mesh.pipeline_parallel > 1 and not ends_meet else {}
        activation = max(unit[-1].output_bytes(cut) for unit in self.setting.body.classes)
        scatters = self.setting.framework.scatters_transfers and not mesh.sequence_parallel
        trained_tied = tied.get("last", 0) if self._trains_embedding else 0
        tied_bytes = float(self.widths.gradient * trained_tied)
        return Ground(
            links=links,
            cut=cut,
            members=self._cut_members(cut, links, key),
            tied_parameters=tied,
            cut_key=key,
            transfer=links.to_next_stage(activation, scattered=scatters),
            barrier=constant(
                self.setting.framework.pace.step_seconds,
                cause=Cause.OVERHEAD,
                relative_error=self.corrections.error(Kind.HOST, HOST_ERROR),
            )
            + links.gradient_norm(),
            tied=links.between_ends(tied_bytes),
            activation_bytes=activation,
            scatters=scatters,
            tied_bytes=tied_bytes,
        )

    def _here(self, mesh: Mesh) -> Mesh:
        """Return the part of a mesh that sits on this group: all of its ranks, or some of its stages."""
        return mesh if self.num_stages is None else replace(mesh, pipeline_parallel=self.num_stages)

    def from_other_group(self, mesh: Mesh, micro_batch_size: int, bridge: GroupBridge) -> Tally:
        """Return one activation's way from a stage on another node group to one on this group."""
        ground = self.ground(mesh, micro_batch_size)
        return ground.links.from_other_group(
            ground.activation_bytes, scattered=ground.scatters, bridge=bridge
        )

    def _tied_parameters(self, cut: Cut) -> Mapping[Member, int]:
        """Return the parameters that members hold as well when what they are tied to is on another stage."""
        return {
            name: max((layer.tied_local_parameters(cut) for layer in layers), default=0)
            for name, layers in self.members.items()
            if name != "first"
        }

    def _cut_members(
        self, cut: Cut, links: MeshLinks, key: tuple[int, ...]
    ) -> Mapping[Member, tuple[LayerPasses[Tally], ...]]:
        """Return the passes of the layers of every class and of both ends."""
        if key not in self._passes:
            clock = self.tallying(links)
            self._passes[key] = {
                name: tuple(self._passes_of(layer, cut, clock, links.mesh) for layer in layers)
                for name, layers in self.members.items()
            }
        return self._passes[key]

    def _passes_of(
        self, layer: Layer, cut: Cut, clock: LayerClock[Estimate, Tally], mesh: Mesh
    ) -> LayerPasses[Tally]:
        """Return the passes of one layer; how experts are spread matters to layers that have some."""
        own, key = self.layer_cut(layer, cut, mesh)
        if key not in self._layer_passes:
            self._layer_passes[key] = clock.passes(layer, own)
        return self._layer_passes[key]

    def layer_cut(self, layer: Layer, cut: Cut, mesh: Mesh) -> tuple[Cut, LayerKey]:
        """Return a cut as far as it matters to a layer, and what decides its passes on a mesh."""
        if layer not in self._axes:
            has_experts = any(split.axis in EXPERT_AXES for split in layer.splits)
            self._axes[layer] = DENSE_AXES + EXPERT_AXES if has_experts else DENSE_AXES
        axes = self._axes[layer]
        own = cut if EXPERT_AXES[0] in axes else replace(cut, expert_parallel=1, expert_tensor_parallel=1)
        if layer not in self.attending:
            own = replace(own, head_exchange=1, gathers_keys=False)
        strides = tuple(axis_stride(mesh, axis) for axis in axes)
        return own, (layer, own, strides, self._added_launch_seconds(mesh))

    def _added_launch_seconds(self, mesh: Mesh) -> Seconds:
        """Return the host time that each launch takes longer in a pipeline."""
        added = self.setting.framework.pace.pipelined_launch_seconds * mesh.tensor_parallel
        return added if mesh.pipeline_parallel > 1 else 0.0

    def tallying(self, links: MeshLinks) -> LayerClock[Estimate, Tally]:
        """Return what times layers on some links, with the causes of all times."""
        ledger = Tallies(launch_relative_error=self.corrections.error(Kind.HOST, LAUNCH_RELATIVE_ERROR))
        return self.clock(links.mesh, self.kernels, links.layer_collective, ledger)

    def clock(
        self,
        mesh: Mesh,
        kernels: KernelClock[Timed],
        collectives: CollectiveClock[Timed],
        ledger: Ledger[Timed, Amount],
    ) -> LayerClock[Timed, Amount]:
        """Return what times layers on a mesh, by some clocks and books."""
        framework, generation = self.setting.framework, self.group.device.architecture.split(" ")[0]
        return LayerClock(
            kernels=kernels,
            collectives=collectives,
            ledger=ledger,
            framework=framework,
            attention_pace=framework.pace.attention(generation),
            added_launch_seconds=self._added_launch_seconds(mesh),
            crossing_seconds=framework.pace.crossing_seconds * further_nodes(self.group, mesh),
            contention_fraction=self.facts.contention_fraction,
            host=self.host and self.host.on(mesh),
        )

    def links(self, mesh: Mesh) -> MeshLinks:
        """Return the communication of the part of a mesh that sits on this group."""
        return MeshLinks(group=self.group, collectives=self.collectives, mesh=self._here(mesh))

    def _part(
        self, name: Member, way: LayerWay, *, ground: Ground, replicas: Replicas, layout: Layout
    ) -> PartCost:
        """Return one counted layer, or one end of the chain.

        What is tied to an embedding on another stage holds a copy of it.
        """
        tied, on_host = ground.tied_parameters.get(name, 0), layout.on_host
        passes = self._state_passes(layout)
        added_up = passes.num_micro_batches if passes else 0
        key = (name, way, tied, replicas.key, ground.cut_key, on_host, added_up)
        if key not in self._parts:
            replicas = replicas if isinstance(name, int) else replicas.at_ends
            held = self._held_by(name, ground, tied=tied)
            run = self._run(name, way.recompute, ground)
            is_sharded = replicas.dense.sharding.gradients > 1
            host = unit_host(self.host, is_layer=isinstance(name, int), is_sharded=is_sharded)
            host += passes.of(held, replicas) if passes else UnitHost()
            zero_stage = replicas.dense.sharding.zero_stage
            overlaps = self.setting.framework.reduction_overlaps(zero_stage)
            facts = self.facts if overlaps else None
            part = shared_part(run, replicas, held=held, host=host, states=self.states, beside=facts)
            whole = self._whole_gradients(name, ground.cut, replicas.dense.sharding)
            part = replace(part, states=part.states + whole)
            if on_host.is_any or way.activations:
                part = self.host_costs.on_host(
                    part,
                    run,
                    self.host_part(held, replicas),
                    sharding=replicas.dense.sharding,
                    shares=on_host,
                    activations=way.activations,
                )
            self._parts[key] = part
        return self._parts[key]

    def _state_passes(self, layout: Layout) -> StatePasses | None:
        """Return what prices passes over gradients and parameters, on a processor that was profiled."""
        if self.host is None or not self.host.is_serial:
            return None
        count = layout.batch.num_micro_batches
        return StatePasses(kernels=self.kernels, states=self.states, num_micro_batches=count)

    @property
    def host_costs(self) -> HostCosts:
        """What hosts cost, where something is known of them."""
        assert self.hosts is not None, "legality refuses to offload where nothing is known of the host"
        return self.hosts

    def host_part(self, held: Holdings, replicas: Replicas) -> HostPart:
        """Return what of some layers can go to the host."""
        return sum(
            (
                self.states.host_part(holding, share.sharding)
                for holding, share in ((held.dense, replicas.dense), (held.experts, replicas.experts))
                if holding.parameters
            ),
            HostPart(),
        )

    def _whole_gradients(self, name: Member, cut: Cut, sharding: Sharding) -> StateBytes:
        """Return what an embedding's gradient takes beyond the device's rows, where it stays whole."""
        framework = self.setting.framework
        if not framework.keeps_whole_embedding_gradients or sharding.gradients > 1:
            return StateBytes()
        tables = (layer for layer in self.members[name] if layer.kind == EMBEDDING)
        beyond = sum(max(table.parameters - table.local_parameters(cut), 0) for table in tables)
        return StateBytes(gradients=self.widths.gradient * beyond)

    def _held_by(self, name: Member, ground: Ground, *, tied: int) -> Holdings:
        """Return what layers hold; ``tied`` parameters come on top of their own."""
        key = (name, tied, ground.cut_key)
        if key not in self._held:
            own = (passes.holdings for passes in ground.members[name])
            self._held[key] = sum(own, Holdings(dense=self._tied_holding(tied)))
        return self._held[key]

    def _run(self, name: Member, recompute: Recompute, ground: Ground) -> Run:
        """Return layers that run one after the other, however their replicas are kept equal."""
        key = (name, recompute, ground.cut_key)
        if key not in self._runs:
            clock, members = self.tallying(ground.links), ground.members[name]
            costs = [clock.cost(passes, recompute) for passes in members]
            run = Run.of(costs)
            if self.setting.framework.splits_backward:
                pairs = zip(members, costs, strict=True)
                parts = [split_backward(clock, passes, cost) for passes, cost in pairs]
                run = replace(run, split=SplitBackward.together(parts))
            self._runs[key] = run
        return self._runs[key]

    def _tied_holding(self, tied: int) -> Holding:
        """Return parameters that are tied to the embedding's: trained where that is."""
        if not self._trains_embedding:
            return Holding(frozen=tied)
        return Holding(trained=WeightShapes(vectors=tied))

    @cached_property
    def _trains_embedding(self) -> bool:
        """Whether the first layers train anything; what is tied to them follows."""
        whole = Cut(micro_batch_size=1, sequence_length=1)
        return any(holdings(layer, whole).dense.trained.parameters for layer in self.members["first"])

    def _state_costs(self) -> StateCosts:
        job = self.setting.job
        precision = attention_precision(job.precision)
        products = self.kernels
        if job.optimizer.newton_schulz_steps and precision is not job.precision:
            wide = KernelCosts.opened(self.group.device, self.profiles, precision)
            products = wide.corrected(self.corrections)
        base = job.trainable.base_format
        return StateCosts(
            optimizer=job.optimizer,
            widths=self.widths,
            base_bytes=self.widths.compute if base is None else BASE_BYTES[base],
            shards_quantized=self.setting.framework.shards_quantized,
            copies_shards=self.setting.framework.copies_shards,
            footprint=self.setting.framework.footprint,
            kernels=self.kernels,
            products=products,
            vector_flops_per_second=self.group.device.peak_flops_per_second.get("fp32"),
            reductions=self.setting.framework.limits.reductions,
            precision=job.precision,
        )

    def between_passes(self, mesh: Mesh, schedule: ScheduleName | None = None) -> Tally:
        """Return what every pass of a pipelined stage takes besides its layers: the least of any schedule."""
        if mesh.pipeline_parallel == 1:
            return NOTHING
        seconds = self.setting.framework.pace.pass_seconds
        if self.host is not None and schedule is not None and not schedule.is_written_out:
            seconds = self.host.listed_pass_seconds
        error = self.corrections.error(Kind.HOST, HOST_ERROR)
        return constant(seconds, cause=Cause.PIPELINE, relative_error=error)


def _paced(setting: Setting, facts: MachineFacts, corrections: Corrections) -> Setting:
    """Return a setting at its host's pace: no launch is faster than measured, runs correct the rest."""
    pace = setting.framework.pace
    slower = replace(pace, launch_seconds=max(pace.launch_seconds, facts.launch_seconds))
    corrected = corrections.paced(slower)
    if corrected == pace:
        return setting
    return replace(setting, framework=replace(setting.framework, pace=corrected))


def _between(between_ns: int, *, is_split: bool) -> FixedPart:
    """Return what every pass of a pipelined stage takes besides its layers; a split backward pass is two."""
    if not is_split:
        return FixedPart(forward_ns=between_ns, backward_ns=between_ns)
    return FixedPart(forward_ns=between_ns, backward_ns=2 * between_ns, weight_ns=between_ns)


@lru_cache(maxsize=4096)
def _splits_attention(layer: Layer) -> bool:
    """Whether a layer runs otherwise where attention is split otherwise over context parallel."""
    cut = Cut(micro_batch_size=1, sequence_length=2, context_parallel=2)
    return layer.operators(cut) != layer.operators(replace(cut, gathers_keys=True))
