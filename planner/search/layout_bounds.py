"""Lower bounds that never lie: what no split of layers over stages can undercut.

All of them rest on one path through the replayed step: down the pipeline to stage i (forward passes
of the first chunks of stages 0 to i - 1), all passes of stage i, back up (backward passes of the
same chunks), and what ends the step on stage 0.
"""

from dataclasses import dataclass

from planner.cost.pipeline import FixedPart, PipelineProblem
from planner.strategy import ScheduleName


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The least that things take in a problem, whatever option a layer runs by."""

    layer_ns: int
    layer_saved_bytes: int
    layer_working_bytes: int

    @classmethod
    def of(cls, problem: PipelineProblem) -> "Floor":
        """Return the componentwise least of all options."""
        return cls(
            layer_ns=min(o.forward_ns for o in problem.options) + min(o.backward_ns for o in problem.options),
            layer_saved_bytes=min(option.saved_bytes for option in problem.options),
            layer_working_bytes=min(option.working_bytes for option in problem.options),
        )


def spread_bound_ns(problem: PipelineProblem) -> int | None:
    """Return a bound for every schedule of a layout, or None where its states alone do not fit.

    The path of stage i is averaged over all stages: whatever the split, the work of all stages adds
    up to the same, and the longest path is at least the average one.
    """
    stages, passes = problem.shape.num_stages, problem.shape.num_micro_batches
    fixed = (problem.first, problem.last)
    static = problem.num_layers * problem.static_bytes + sum(part.static_bytes for part in fixed)
    if problem.base_bytes + static // stages > problem.limit_bytes:
        return None
    layer_ns = Floor.of(problem).layer_ns
    work = problem.num_layers * layer_ns + sum(part.forward_ns + part.backward_ns for part in fixed)
    every = problem.every.forward_ns + problem.every.backward_ns
    update = problem.num_layers * problem.optimizer_ns + sum(part.optimizer_ns for part in fixed)
    # Between stage 0 and stage i stand i - 1 chunks of at least one layer, and stage 0's own.
    waits = (layer_ns + every) * (stages - 1) * (stages - 2) // 2
    return problem.barrier_ns + (passes * (work + stages * every) + update + waits) // stages


def layout_bound_ns(problem: PipelineProblem) -> int | None:
    """Return a bound for one layout with its schedule, None where memory rules every split out."""
    lines = [_StageLine.of(problem, stage) for stage in range(problem.shape.num_stages)]
    if sum(line.most_layers for line in lines) < problem.num_layers:
        return None
    if any(line.most_layers < line.fewest_layers for line in lines):
        return None
    low = max(line.path_ns(line.fewest_layers) for line in lines)
    high = max(line.path_ns(min(line.most_layers, problem.num_layers)) for line in lines)
    while low < high:
        middle = (low + high) // 2
        if sum(line.layers_within(middle) for line in lines) >= problem.num_layers:
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True, kw_only=True, slots=True)
class _StageLine:
    """The path of one stage as a line over its layers, and how many layers its memory can hold."""

    fewest_layers: int
    most_layers: int
    start_ns: int
    slope_ns: int

    @classmethod
    def of(cls, problem: PipelineProblem, stage: int) -> "_StageLine":
        floor = Floor.of(problem)
        chunks = range(stage, problem.shape.num_chunks, problem.shape.num_stages)
        parts = [problem.fixed_part(chunk) for chunk in chunks]
        fixed_ns = sum(part.forward_ns + part.backward_ns for part in parts)
        passes = problem.shape.num_micro_batches
        update = sum(part.optimizer_ns for part in parts) if stage == 0 else 0
        return cls(
            fewest_layers=sum(problem.minimum_layers(chunk) for chunk in chunks),
            most_layers=_most_layers(problem, stage, floor, parts),
            start_ns=problem.barrier_ns
            + update
            + problem.tied_ns
            + passes * (fixed_ns + _own_transfers_ns(problem, stage))
            + _way_ns(problem, stage, floor),
            slope_ns=passes * floor.layer_ns,
        )

    def path_ns(self, layers: int) -> int:
        return self.start_ns + layers * self.slope_ns

    def layers_within(self, limit_ns: int) -> int:
        """Return the most layers whose path stays within a limit; negative when none does."""
        if limit_ns < self.path_ns(self.fewest_layers):
            return -(10**9)
        if not self.slope_ns:
            return self.most_layers
        return min(self.most_layers, (limit_ns - self.start_ns) // self.slope_ns)


def _way_ns(problem: PipelineProblem, stage: int, floor: Floor) -> int:
    """Return the least time down to a stage and back up from it."""
    way = 0
    for before in range(stage):
        part = problem.fixed_part(before)
        way += part.forward_ns + part.backward_ns + problem.minimum_layers(before) * floor.layer_ns
        way += 2 * problem.transfer_ns
    # A blocking send back from this stage is part of its own passes, counted there.
    return way - problem.transfer_ns if stage and problem.transfer_blocks else way


def _own_transfers_ns(problem: PipelineProblem, stage: int) -> int:
    """Return how long blocking sends occupy a stage per micro-batch."""
    if not problem.transfer_blocks or problem.shape.num_stages == 1:
        return 0
    chunks = range(stage, problem.shape.num_chunks, problem.shape.num_stages)
    sends = sum((chunk > 0) + (chunk < problem.shape.num_chunks - 1) for chunk in chunks)
    return sends * problem.transfer_ns


def _most_layers(problem: PipelineProblem, stage: int, floor: Floor, parts: list[FixedPart]) -> int:
    """Return how many layers a stage can hold at one moment that every order passes through."""
    saved = saved_at_warm_up_end(problem, stage)
    fewest = [problem.minimum_layers(turn * problem.shape.num_stages + stage) for turn in range(len(parts))]
    used = problem.base_bytes + sum(part.static_bytes for part in parts)
    used += sum(
        count * (part.saved_bytes + least * floor.layer_saved_bytes)
        for count, part, least in zip(saved, parts, fewest, strict=True)
    )
    used += sum(fewest) * problem.static_bytes
    room = problem.limit_bytes - used
    if room < 0:
        return -1
    each = problem.static_bytes + min(saved) * floor.layer_saved_bytes
    return sum(fewest) + (room // each if each else problem.num_layers)


def saved_at_warm_up_end(problem: PipelineProblem, stage: int) -> list[int]:
    """Return the micro-batches saved per chunk of a stage after the first pass beyond its warm-up."""
    shape = problem.shape
    passes, turns = shape.num_micro_batches, shape.virtual_stages
    distance = shape.num_stages - stage - 1
    match shape.schedule:
        case ScheduleName.GPIPE:
            return [passes]
        case ScheduleName.ONE_FORWARD_ONE_BACKWARD:
            return [min(distance + 1, passes)]
        case ScheduleName.INTERLEAVED:
            group = shape.group_size or shape.num_stages
            started = min(2 * distance + (turns - 1) * group + 1, turns * passes)
            return _spread_over_turns(started, group=group, turns=turns, passes=passes)


def _spread_over_turns(started: int, *, group: int, turns: int, passes: int) -> list[int]:
    """Return how many of the first ``started`` forward passes each chunk ran."""
    counts = [0] * turns
    done = 0
    for first in range(0, passes, group):
        size = min(group, passes - first)
        for turn in range(turns):
            taken = min(size, started - done)
            if taken <= 0:
                return counts
            counts[turn] += taken
            done += taken
    return counts
