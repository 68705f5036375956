"""What a plan would do: step time with its parts and its interval, memory of every stage."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import hypot, sqrt
from typing import Final

from planner.cost.layer import model_flops
from planner.cost.mesh_links import further_nodes
from planner.cost.pipeline import PipelineProblem
from planner.cost.replay import gather_floor_ns, occupied_ns, transfer_after_ns
from planner.cost.schedules import BACKWARD, FORWARD
from planner.cost.tally import NOTHING, Cause, Family, Tally, total
from planner.plan import Prediction, ProvenanceShares, StageMemory, TimeBreakdown
from planner.played_plan import PlayedPlan
from planner.predicted_memory import STANDARD_DEVIATIONS, host_memory, stage_memories
from planner.profile import Provenance
from planner.strategy import ZeroStage
from planner.units import NANOSECONDS_PER_SECOND, FlopsPerSecond, Seconds

STEADY_DEVICES: Final = 64
"""Up to how many devices no sends were seen to stall where replicas share states; else up to a node's."""
MOST_NEIGHBOURS: Final = 2
MODEL_ERROR: Final = 0.04
"""Relative error of a step that no operator accounts for (stragglers, loader, what overlaps how)."""


def predict(plan: PlayedPlan) -> Prediction:
    """Return the prediction of a played plan."""
    seconds = plan.played.makespan_ns / NANOSECONDS_PER_SECOND
    job, devices = plan.setting.job, plan.layout.mesh.world_size
    busy = _busiest_stage(plan)
    parts = _stage_tally(plan, busy)
    memory, hosts = stage_memories(plan), host_memory(plan)
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
        step_time_interval_seconds=_interval(plan, seconds, parts, busy, memory=memory),
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


def _stage_tally(plan: PlayedPlan, stage: int) -> Tally:
    """Return everything that a stage does in a step, waiting and exposed reductions left out."""
    shape, passes = plan.problem.shape, plan.problem.shape.num_micro_batches
    is_split = shape.schedule.splits_backward
    work = [
        part
        for cost, count in plan.part_counts(stage)
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


def _interval(
    plan: PlayedPlan, seconds: Seconds, parts: Tally, stage: int, *, memory: Sequence[StageMemory]
) -> tuple[Seconds, Seconds]:
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
    is_full = any(each.peak_bytes >= each.capacity_bytes for each in memory)
    return max(seconds - width, 0.0), seconds + hypot(width, _stalled_seconds(plan, stage, is_full=is_full))


def _stalled_seconds(plan: PlayedPlan, stage: int, *, is_full: bool) -> Seconds:
    """Return what a step takes longer where a program's sends stall, as they may between many devices.

    And between fewer that are full: their allocators wait for them, free all that is unused, and ask again.
    """
    stalled = plan.setting.framework.pace.stalled_send_seconds
    shape = plan.problem.shape
    devices = plan.layout.mesh.world_size
    is_whole = plan.layout.sharding.zero_stage is ZeroStage.NONE
    is_steady = devices <= (plan.group(stage).devices_per_node if is_whole else STEADY_DEVICES)
    crosses = further_nodes(plan.group(stage), plan.layout.mesh) > 0
    if not stalled or (is_steady and not is_full):
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
