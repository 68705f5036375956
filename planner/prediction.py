"""What a plan would do: step time with its parts and its interval, memory of every stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import hypot, sqrt
from typing import Final

from planner.cluster import NodeGroup
from planner.cost.geometry import stages_of_nodes
from planner.cost.layer import model_flops
from planner.cost.layout_costs import LayoutCosts, PartCost
from planner.cost.memory import StateBytes
from planner.cost.mesh_links import further_nodes
from planner.cost.model import CostModel
from planner.cost.pipeline import Assignment, PipelineProblem, moment_bytes
from planner.cost.placed_layout import PlacedLayout, place
from planner.cost.replay import Replay, gather_floor_ns, occupied_ns, replay, transfer_after_ns
from planner.cost.schedules import (
    BACKWARD,
    FORWARD,
    Moment,
    PassKind,
    memory_moments,
    most_kept,
    stage_orders,
)
from planner.cost.steady import StepEnds, step_ends
from planner.cost.tally import NOTHING, Cause, Family, Tally, total
from planner.legality import Setting
from planner.plan import (
    HostMemory,
    MemoryBreakdown,
    Prediction,
    ProvenanceShares,
    StageMemory,
    TimeBreakdown,
    TimelineEvent,
)
from planner.profile import Provenance
from planner.strategy import Layout, ZeroStage
from planner.units import NANOSECONDS_PER_SECOND, Bytes, FlopsPerSecond, Seconds

STANDARD_DEVIATIONS: Final = 1.2816
"""Half width of an 80 % interval of a normal distribution."""
STEADY_DEVICES: Final = 64
"""Up to how many devices no sends were seen to stall where replicas share states; else up to a node's."""
MOST_NEIGHBOURS: Final = 2
MODEL_ERROR: Final = 0.04
"""Relative error of a step that no operator accounts for (stragglers, loader, what overlaps how)."""


OPERATIONS: Final = {
    PassKind.FORWARD: "forward",
    PassKind.BACKWARD: "backward",
    PassKind.INPUT: "input_gradient",
    PassKind.WEIGHT: "weight_gradient",
}
"""The words of a timeline for passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedPlan:
    """A plan with everything that its prediction is read from."""

    layout: Layout
    assignment: Assignment
    placed: PlacedLayout
    played: StepEnds

    @property
    def problem(self) -> PipelineProblem:
        """What was replayed."""
        return self.placed.problem

    @property
    def setting(self) -> Setting:
        """What the plan trains, and how."""
        return self.placed.stages[0].model.setting

    def costs(self, stage: int) -> LayoutCosts:
        """Return the figures of a stage on its node group."""
        return self.placed.stages[stage].costs

    def group(self, stage: int) -> NodeGroup:
        """Return the node group of a stage."""
        return self.placed.stages[stage].model.group


def play(model: CostModel, layout: Layout, assignment: Assignment) -> PlayedPlan:
    """Price a layout on one node group and replay one step of it."""
    return play_placed(place(model, layout), layout, assignment)


def play_placed(placed: PlacedLayout, layout: Layout, assignment: Assignment) -> PlayedPlan:
    """Play one step of a layout that is priced where its stages sit."""
    played = step_ends(placed.problem, placed.chunk_costs(assignment))
    return PlayedPlan(layout=layout, assignment=assignment, placed=placed, played=played)


def predict(plan: PlayedPlan) -> Prediction:
    """Return the prediction of a played plan."""
    seconds = plan.played.makespan_ns / NANOSECONDS_PER_SECOND
    job, devices = plan.setting.job, plan.layout.mesh.world_size
    busy = _busiest_stage(plan)
    parts = _stage_tally(plan, busy)
    memory = tuple(_stage_memory(plan, stage) for stage in range(plan.problem.shape.num_stages))
    hosts = _host_memory(plan)
    flops = model_flops(
        [(run.layer, run.count) for run in plan.setting.workload.runs],
        sequence_length=job.sequence_length or 1,
        samples=job.global_batch_size,
    )
    rate = flops / seconds / devices
    sequences = job.global_batch_size * job.sequences_per_sample
    tokens = sequences * job.sequence_length / seconds if job.sequence_length else None
    return Prediction(
        step_time_seconds=seconds,
        step_time_interval_seconds=_interval(plan, seconds, parts, busy),
        samples_per_second=job.global_batch_size / seconds,
        tokens_per_second=tokens,
        tokens_per_second_per_device=tokens / devices if tokens else None,
        model_flops_per_second_per_device=rate,
        mfu=rate / _mean_peak(plan),
        breakdown_seconds=_breakdown(plan, busy, parts),
        memory=memory,
        host=hosts,
        fits=all(stage.fits for stage in memory) and all(host.fits for host in hosts),
        provenance=_provenance(parts),
    )


def _mean_peak(plan: PlayedPlan) -> FlopsPerSecond:
    """Return the peak of a device, on average over the stages: they have equally many devices."""
    peaks = [stage.model.peak_flops_per_second for stage in plan.placed.stages]
    return sum(peaks) / len(peaks)


# --- time --------------------------------------------------------------------------------------


def _part_counts(plan: PlayedPlan, stage: int) -> list[tuple[PartCost, int]]:
    """Return the parts on a stage and how many of each: layers by option, and the chain's ends."""
    chunks = plan.problem.shape.chunks_of(stage)
    costs = plan.costs(stage)
    counted = [
        (part, sum(plan.assignment[chunk][option] for chunk in chunks))
        for option, part in enumerate(costs.layers)
    ]
    ends = [(costs.first, 0 in chunks), (costs.last, plan.problem.shape.num_chunks - 1 in chunks)]
    return [*counted, *((part, int(present)) for part, present in ends)]


def _stage_tally(plan: PlayedPlan, stage: int) -> Tally:
    """Return everything that a stage does in a step, waiting and exposed reductions left out."""
    shape, passes = plan.problem.shape, plan.problem.shape.num_micro_batches
    is_split = shape.schedule.splits_backward
    work = [
        part
        for cost, count in _part_counts(plan, stage)
        for part in (
            cost.forward.times(count * passes),
            cost.backward_pass(is_split=is_split).times(count * passes),
            cost.optimizer.times(count),
        )
    ]
    kinds = 3 if is_split else 2
    between = plan.costs(stage).between_passes.times(kinds * passes * shape.virtual_stages)
    return total((*work, between, plan.placed.barrier, _blocking_transfers(plan, stage)))


def _blocking_transfers(plan: PlayedPlan, stage: int) -> Tally:
    if not plan.problem.transfer_blocks or not plan.problem.transfer_ns:
        return NOTHING
    chunks = plan.problem.shape.chunks_of(stage)
    placed, passes = plan.placed.stages[stage], plan.problem.shape.num_micro_batches
    ways = ((placed.to_next, False), (placed.to_previous, True))
    return total(
        way.times(passes * _num_sends(plan.problem, chunks, backward=backward)) for way, backward in ways
    )


def _num_sends(problem: PipelineProblem, chunks: range, *, backward: bool) -> int:
    return sum(transfer_after_ns(problem, chunk, backward=backward) > 0 for chunk in chunks)


def _busiest_stage(plan: PlayedPlan) -> int:
    stages = range(plan.problem.shape.num_stages)
    return max(stages, key=lambda stage: (_busy_ns(plan, stage), -stage))


def _busy_ns(plan: PlayedPlan, stage: int) -> int:
    passes = plan.problem.shape.num_micro_batches
    return sum(
        passes * occupied_ns(plan.problem, chunk, plan.played.costs[chunk], kind=kind)
        for chunk in plan.problem.shape.chunks_of(stage)
        for kind in (FORWARD, BACKWARD)
    )


def _breakdown(plan: PlayedPlan, stage: int, parts: Tally) -> TimeBreakdown:
    """Return the step of the busiest stage by cause; what is left over is its bubble."""
    causes = dict(parts.causes)
    whole = plan.played.makespan_ns / NANOSECONDS_PER_SECOND
    visible = _visible_replica_seconds(plan, stage)
    causes[Cause.DATA_PARALLEL] = causes.get(Cause.DATA_PARALLEL, 0.0) + visible
    causes[Cause.BUBBLE] = whole - sum(causes.values())
    # Durations are rounded to whole nanoseconds before they are replayed: a remainder of some ns.
    if causes[Cause.BUBBLE] < 0:
        causes[Cause.COMPUTE] += causes.pop(Cause.BUBBLE)
    return TimeBreakdown(**{cause.value: seconds for cause, seconds in causes.items()})


def _visible_replica_seconds(plan: PlayedPlan, stage: int) -> Seconds:
    """Return how long a stage waits for gathers before its first pass and for reductions at the end."""
    problem, played = plan.problem, plan.played
    first, first_end = played.first_chunks[stage], played.first_end_ns[stage]
    if problem.gather_overlaps:
        start = first_end - occupied_ns(problem, first, played.costs[first], kind=FORWARD)
        floor = gather_floor_ns(problem, played.costs[first], played.gather_end_ns[first])
        waited = max(0, min(start - played.update_end_ns[stage], floor - first_end + start))
        waited = waited if floor == first_end else 0
    else:
        waited = played.gather_end_ns[problem.shape.chunks_of(stage)[-1]]
        waited -= played.update_end_ns[stage]
    tail = played.stage_end_ns[stage] - played.last_end_ns[stage]
    return (waited + tail) / NANOSECONDS_PER_SECOND


def family_errors(plan: PlayedPlan) -> Mapping[Family, Seconds]:
    """Return one standard deviation of a step by family of kernels and links."""
    seconds = plan.played.makespan_ns / NANOSECONDS_PER_SECOND
    return _family_errors(_stage_tally(plan, _busiest_stage(plan)), seconds)


def _family_errors(parts: Tally, seconds: Seconds) -> Mapping[Family, Seconds]:
    """Return the errors of the work in a step; waiting follows the work that is waited for."""
    scale = seconds / parts.seconds if parts.seconds else 1.0
    return {family: error * scale for family, error in parts.error_seconds.items()}


def _interval(plan: PlayedPlan, seconds: Seconds, parts: Tally, stage: int) -> tuple[Seconds, Seconds]:
    """Return the 80 % interval: kernels of a family err together, families as runs of the machine say.

    Where none do, families err independently. Where steps of the program were measured as well, they
    say by how much that errs: the pace's ``spread``.
    """
    errors = _family_errors(parts, seconds)
    corrections = plan.placed.stages[stage].model.corrections
    variance = sum(error**2 for error in errors.values())
    variance += 2 * sum(
        corrections.correlation(one, other) * errors[one] * errors[other]
        for one, other in combinations(errors, 2)
    )
    spread = plan.setting.framework.pace.spread
    width = spread * STANDARD_DEVIATIONS * sqrt(max(variance, 0.0) + (MODEL_ERROR * seconds) ** 2)
    return max(seconds - width, 0.0), seconds + hypot(width, _stalled_seconds(plan, stage))


def _stalled_seconds(plan: PlayedPlan, stage: int) -> Seconds:
    """Return what a step takes longer where a program's sends stall, as they may between many devices."""
    stalled = plan.setting.framework.pace.stalled_send_seconds
    shape = plan.problem.shape
    devices = plan.layout.mesh.world_size
    is_whole = plan.layout.sharding.zero_stage is ZeroStage.NONE
    is_steady = devices <= (plan.group(stage).devices_per_node if is_whole else STEADY_DEVICES)
    crosses = further_nodes(plan.group(stage), plan.layout.mesh) > 0
    if not stalled or is_steady:
        return 0.0
    # Each micro-batch comes from a neighbour and goes back to it; the ranks of a tensor-parallel group that
    # reaches over nodes wait for each other as long.
    neighbours = MOST_NEIGHBOURS if crosses else min(shape.num_stages - 1, MOST_NEIGHBOURS)
    return stalled * 2 * neighbours * shape.num_micro_batches * len(shape.chunks_of(stage))


def _provenance(parts: Tally) -> ProvenanceShares:
    known = sum(parts.provenance.values())
    if not known:
        return ProvenanceShares(datasheet=1.0)
    shares = {origin: parts.provenance.get(origin, 0.0) / known for origin in Provenance}
    return ProvenanceShares(
        measured=shares[Provenance.MEASURED],
        interpolated=shares[Provenance.INTERPOLATED],
        datasheet=shares[Provenance.DATASHEET],
    )


# --- memory ------------------------------------------------------------------------------------


def _stage_memory(plan: PlayedPlan, stage: int) -> StageMemory:
    moment = _fullest_moment(plan, stage)
    breakdown = _memory_breakdown(plan, stage, moment)
    transient = breakdown.activations + breakdown.logits + breakdown.buffers
    states = breakdown.parameters + breakdown.gradients + breakdown.optimizer
    peak = states + transient + breakdown.framework
    footprint = plan.setting.framework.footprint
    width = STANDARD_DEVIATIONS * hypot(
        footprint.state_error * states, footprint.transient_error * (transient + breakdown.framework)
    )
    unsure = footprint.unsure_gathered_inputs * _gathered_inputs(plan, stage, moment)
    share = footprint.pipelined_gathered_share if plan.problem.shape.num_stages > 1 else 1.0
    less, more = hypot(width, unsure), hypot(width, unsure * (1 / share - 1))
    capacity = plan.costs(stage).capacity_bytes
    return StageMemory(
        stage=stage,
        node_group=plan.group(stage).name,
        peak_bytes=peak,
        peak_allocated_bytes=states + transient,
        capacity_bytes=capacity,
        fits=peak <= capacity,
        interval_bytes=(max(peak - less, 0.0), peak + more),
        breakdown_bytes=breakdown,
    )


def _fullest_moment(plan: PlayedPlan, stage: int) -> Moment:
    own = plan.played.costs[plan.problem.shape.own(stage)]
    return max(memory_moments(plan.problem.shape, stage), key=lambda moment: moment_bytes(moment, own))


def _gathered_inputs(plan: PlayedPlan, stage: int, moment: Moment) -> Bytes:
    """Return what saved inputs take beyond their shards at a moment of a stage."""
    per_chunk = (
        sum(part.gathered_input_bytes * count for part, count in parts) for parts in _chunk_parts(plan, stage)
    )
    return sum(count * size for count, size in zip(moment.saved, per_chunk, strict=True))


def _memory_breakdown(plan: PlayedPlan, stage: int, moment: Moment) -> MemoryBreakdown:
    own = _chunk_parts(plan, stage)
    saved = [sum(part.saved_bytes * count for part, count in parts) for parts in own]
    logits = [sum(part.logits_bytes * count for part, count in parts) for parts in own]
    all_saved = sum(count * size for count, size in zip(moment.saved, saved, strict=True))
    held = [sum(part.split.held_bytes * count for part, count in parts) for parts in own]
    all_saved += sum(count * size for count, size in zip(moment.waiting, held, strict=False))
    all_logits = sum(count * size for count, size in zip(moment.saved, logits, strict=True))
    working = max((part.working_bytes for part, count in own[moment.turn] if count), default=0.0)
    costs = plan.costs(stage)
    buffers = costs.buffer_bytes + (working if moment.backward else 0.0)
    states = _states(plan, stage)
    return MemoryBreakdown(
        parameters=states.parameters,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=all_saved - all_logits,
        logits=all_logits,
        buffers=buffers,
        framework=costs.base_bytes + costs.fragmentation_fraction * (all_saved + buffers),
    )


def _chunk_parts(plan: PlayedPlan, stage: int) -> list[list[tuple[PartCost, int]]]:
    """Return parts and counts of each chunk of a stage."""
    shape, costs = plan.problem.shape, plan.costs(stage)
    own: list[list[tuple[PartCost, int]]] = []
    for chunk in shape.chunks_of(stage):
        parts = list(zip(costs.layers, plan.assignment[chunk], strict=True))
        parts += [(costs.first, 1)] if chunk == 0 else []
        parts += [(costs.last, 1)] if chunk == shape.num_chunks - 1 else []
        own.append(parts)
    return own


def _states(plan: PlayedPlan, stage: int) -> StateBytes:
    whole = StateBytes()
    for part, count in _part_counts(plan, stage):
        for _ in range(count):
            whole = whole + part.states
    return whole


def _host_memory(plan: PlayedPlan) -> tuple[HostMemory, ...]:
    """Return what the fullest node of each group keeps on its host."""
    num_stages = plan.problem.shape.num_stages
    groups = {plan.group(stage).name: plan.group(stage) for stage in range(num_stages)}
    return tuple(
        _memory_of_hosts(plan, group, [s for s in range(num_stages) if plan.group(s) is group])
        for group in groups.values()
    )


def _memory_of_hosts(plan: PlayedPlan, group: NodeGroup, stages: Sequence[int]) -> HostMemory:
    """Return the host memory of a group that has some of the stages, in their order."""
    own = [_host_bytes(plan, stage) for stage in stages] if plan.layout.offloads else [0.0] * len(stages)
    here = replace(plan.layout.mesh, pipeline_parallel=len(stages))
    nodes = stages_of_nodes(here, devices_per_node=group.devices_per_node) if any(own) else ()
    needed = max((sum(count * own[stage] for stage, count in node) for node in nodes), default=0.0)
    capacity = group.host.memory_bytes if group.host else 0.0
    return HostMemory(
        node_group=group.name,
        memory_bytes=needed,
        capacity_bytes=capacity,
        nvme_bytes_per_node=0.0,
        fits=needed <= capacity or not needed,
    )


def _host_bytes(plan: PlayedPlan, stage: int) -> float:
    """Return what one device of a stage keeps on its host: states, each chunk's activations at their most.

    Pinned buffers stay when they are empty.
    """
    states = sum(part.host_bytes * count for part, count in _part_counts(plan, stage))
    saved = [
        sum(part.host_saved_bytes * count for part, count in parts) for parts in _chunk_parts(plan, stage)
    ]
    kept = most_kept(plan.problem.shape, stage)
    return states + sum(count * size for count, size in zip(kept, saved, strict=True))


# --- drawing -----------------------------------------------------------------------------------


def timeline(plan: PlayedPlan) -> tuple[TimelineEvent, ...]:
    """Return every operation of the replayed step, stage by stage in order of time."""
    played = replay(plan.problem, plan.played.costs)
    stages = range(plan.problem.shape.num_stages)
    return tuple(event for stage in stages for event in _stage_events(played, stage))


def _stage_events(played: Replay, stage: int) -> Sequence[TimelineEvent]:
    shape = played.problem.shape
    events = [_event(stage, 0, -1, "optimizer", 0, played.update_end_ns[stage])]
    for step in stage_orders(shape)[stage]:
        turn, name = shape.turn_of(step.chunk), OPERATIONS[PassKind(step.kind)]
        start, end = played.start_ns(step), played.end_ns(step)
        events.append(_event(stage, turn, step.micro_batch, name, start, end))
    last = events[-1]
    tail = round(last.end_seconds * NANOSECONDS_PER_SECOND)
    if played.stage_end_ns[stage] > tail:
        events.append(_event(stage, 0, -1, "reduce", tail, played.stage_end_ns[stage]))
    return events


def _event(stage: int, turn: int, micro_batch: int, name: str, start_ns: int, end_ns: int) -> TimelineEvent:
    return TimelineEvent(
        stage=stage,
        virtual_stage=turn,
        micro_batch=micro_batch,
        operation=name,
        start_seconds=start_ns / NANOSECONDS_PER_SECOND,
        end_seconds=end_ns / NANOSECONDS_PER_SECOND,
    )
