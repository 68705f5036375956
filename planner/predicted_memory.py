"""What every stage of a plan holds on its devices at its fullest moment, and on its hosts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import hypot
from typing import Final, Self

from planner.cluster import NodeGroup
from planner.cost.geometry import stages_of_nodes
from planner.cost.layout_costs import PartCost
from planner.cost.memory import StateBytes
from planner.cost.pipeline import moment_bytes
from planner.cost.schedules import Moment, memory_moments, most_kept
from planner.plan import HostMemory, MemoryBreakdown, StageMemory
from planner.played_plan import PlayedPlan
from planner.units import Bytes

STANDARD_DEVIATIONS: Final = 1.2816
"""Half width of an 80 % interval of a normal distribution."""


def stage_memories(plan: PlayedPlan) -> tuple[StageMemory, ...]:
    """Return what a device of every stage holds at its fullest moment."""
    holders = _Holders(plan=plan)
    return tuple(_stage_memory(holders, stage) for stage in range(plan.problem.shape.num_stages))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """What one chunk keeps of one micro-batch until backward, and needs besides while it makes gradients."""

    saved: Bytes
    logits: Bytes
    waiting: Bytes
    working: Bytes

    @classmethod
    def of(cls, parts: Sequence[tuple[PartCost, int]]) -> Self:
        """Return what parts keep, each so many times."""
        return cls(
            saved=sum(part.saved_bytes * count for part, count in parts),
            logits=sum(part.logits_bytes * count for part, count in parts),
            waiting=sum(part.split.held_bytes * count for part, count in parts),
            working=max((part.working_bytes for part, count in parts if count), default=0.0),
        )


_Key = tuple[str, tuple[int, ...], bool, bool]


@dataclass(kw_only=True, eq=False, slots=True)
class _Holders:
    """What stages and chunks hold: those with equal layers on equal devices hold the same."""

    plan: PlayedPlan
    _chunks: dict[_Key, _Held] = field(default_factory=dict, init=False)
    _states: dict[tuple[_Key, ...], StateBytes] = field(default_factory=dict, init=False)

    def chunks(self, stage: int) -> list[_Held]:
        """Return what each chunk of a stage keeps of a micro-batch, in the order of its turns."""
        keys = self._keys(stage)
        if not all(key in self._chunks for key in keys):
            self._chunks |= zip(keys, map(_Held.of, self.plan.chunk_parts(stage)), strict=True)
        return [self._chunks[key] for key in keys]

    def states(self, stage: int) -> StateBytes:
        """Return the states of all layers on a stage."""
        keys = self._keys(stage)
        if keys not in self._states:
            parts = self.plan.part_counts(stage)
            self._states[keys] = sum(
                (part.states for part, count in parts for _ in range(count)), start=StateBytes()
            )
        return self._states[keys]

    def _keys(self, stage: int) -> tuple[_Key, ...]:
        """Return for each chunk of a stage what decides all that it holds."""
        shape, group = self.plan.problem.shape, self.plan.group(stage).name
        last = shape.num_chunks - 1
        return tuple(
            (group, self.plan.assignment[chunk], chunk == 0, chunk == last)
            for chunk in shape.chunks_of(stage)
        )


def _stage_memory(holders: _Holders, stage: int) -> StageMemory:
    """Return what a device of a stage holds: what it needs, and as much withheld as there is room for."""
    plan, costs = holders.plan, holders.plan.costs(stage)
    moment = _fullest_moment(plan, stage)
    breakdown = _memory_breakdown(holders, stage, moment)
    transient = breakdown.activations + breakdown.logits + breakdown.buffers
    states = breakdown.parameters + breakdown.gradients + breakdown.optimizer
    needed = states + transient + breakdown.framework
    withheld = min(costs.withheld_bytes, max(costs.capacity_bytes - needed, 0.0))
    breakdown = replace(breakdown, framework=breakdown.framework + withheld)
    peak = needed + withheld
    footprint = plan.setting.framework.footprint
    width = STANDARD_DEVIATIONS * hypot(
        footprint.state_error * states, footprint.transient_error * (transient + breakdown.framework)
    )
    # A host that waits for the device, as in stalled sends, withholds nothing.
    less = hypot(width, withheld)
    return StageMemory(
        stage=stage,
        node_group=plan.group(stage).name,
        peak_bytes=peak,
        peak_allocated_bytes=states + transient,
        peak_reserved_bytes=peak - costs.base_bytes,
        capacity_bytes=costs.capacity_bytes,
        fits=peak <= costs.capacity_bytes,
        interval_bytes=(max(peak - less, 0.0), peak + width),
        breakdown_bytes=breakdown,
    )


def _fullest_moment(plan: PlayedPlan, stage: int) -> Moment:
    own = plan.played.costs[plan.problem.shape.own(stage)]
    return max(memory_moments(plan.problem.shape, stage), key=lambda moment: moment_bytes(moment, own))


def _memory_breakdown(holders: _Holders, stage: int, moment: Moment) -> MemoryBreakdown:
    own, states, costs = holders.chunks(stage), holders.states(stage), holders.plan.costs(stage)
    all_saved = sum(count * chunk.saved for count, chunk in zip(moment.saved, own, strict=True))
    all_saved += sum(count * chunk.waiting for count, chunk in zip(moment.waiting, own, strict=False))
    all_logits = sum(count * chunk.logits for count, chunk in zip(moment.saved, own, strict=True))
    buffers = costs.buffer_bytes + (own[moment.turn].working if moment.backward else 0.0)
    return MemoryBreakdown(
        parameters=states.parameters,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=all_saved - all_logits,
        logits=all_logits,
        buffers=buffers,
        framework=costs.base_bytes + costs.fragmentation_fraction * (all_saved + buffers),
    )


def host_memory(plan: PlayedPlan) -> tuple[HostMemory, ...]:
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
    states = sum(part.host_bytes * count for part, count in plan.part_counts(stage))
    saved = [sum(part.host_saved_bytes * count for part, count in parts) for parts in plan.chunk_parts(stage)]
    kept = most_kept(plan.problem.shape, stage)
    return states + sum(count * size for count, size in zip(kept, saved, strict=True))
