"""Step times that no plan of a layout undercuts: cheap, and never above the true optimum.

A path through a stage bounds the step by that stage's layers; any weights over such paths bound it by
a weighted sum, in which only the total number of layers matters when the weights are chosen so that
each stage counts alike. Weights are floating-point numbers, and any that are not negative give a true
bound; the rest is rounded down by SAFETY.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost.pipeline import PipelineProblem
from planner.search.box import Box, narrow
from planner.search.capacity import apart_may_fit, even_chunks_fit, fits_at_all, in_order, most_layers
from planner.search.forced import forced_ns
from planner.search.paths import FILLED_ALONE
from planner.search.rows import fewest_layers, fixed_parts
from planner.search.shares import gpipe_shares, pipeline_shares, through_shares
from planner.strategy import ScheduleName

SAFETY: Final = 1e-9
"""Relative margin for rounding in floating point, far above the errors of a 64-bit sum."""

Reals = NDArray[np.float64]
Number = TypeVar("Number", np.int64, np.float64)


def lower_bound_ns(problem: PipelineProblem) -> int | None:
    """Return a time that no assignment of a layout undercuts, None when none fits the memory."""
    if not fits_at_all(problem):
        return None
    facts = facts_of(problem)
    make = _ROWS_OF_ONE_CHUNK.get(problem.shape.schedule, through_rows)
    bound = max(_bound(problem, make(problem, facts)), _updated_ns(problem, facts))
    return max(bound, _one_micro_batch_ns(problem)) if problem.shape.schedule in FILLED_ALONE else bound


def spread_bound_ns(problem: PipelineProblem) -> int | None:
    """Return a time that no schedule of a 1F1B problem's stages undercuts, None when none fits.

    Schedules that make gradients of weights apart are not among them: see `apart_bound_ns`.
    """
    if not fits_at_all(problem, any_schedule=True):
        return None
    facts = facts_of(problem)
    rows = through_rows(problem, facts, blocking=False)
    return max(_bound(problem, rows), _updated_ns(problem, facts))


def apart_bound_ns(problem: PipelineProblem) -> int | None:
    """Return a time that no zero-bubble schedule undercuts whose costs are at least a problem's.

    None where none fits the memory. Each stage pays the barrier, waits for the forward passes of those
    before it, which hold at least one layer each (the first one perhaps none), and then runs its own passes:
    on average at least so much.
    """
    if not apart_may_fit(problem):
        return None
    facts, p, m = facts_of(problem), problem.shape.num_stages, problem.shape.num_micro_batches
    work = m * (facts.each * problem.num_layers + float(facts.fixed.sum()))
    waits = facts.least_fill * (p - 1) * (p - 2) / 2
    return max(_safe(problem.barrier_ns + (work + waits) / p), _updated_ns(problem, facts))


def _updated_ns(problem: PipelineProblem, facts: "Facts") -> int:
    """Return what stages take on average for their updates and then their passes, under any schedule.

    It says more than a path through one stage where hosts update, for longer than a pipeline fills.
    """
    counts = Counter(problem.sequence)
    updates = sum(layers.optimizer_ns * counts[number] for number, layers in enumerate(problem.classes))
    updates += sum(part.optimizer_ns for part in fixed_parts(problem))
    work = facts.each * problem.num_layers + float(facts.fixed.sum())
    stages = problem.shape.num_stages
    return _safe(problem.barrier_ns + (updates + problem.shape.num_micro_batches * work) / stages)


def _one_micro_batch_ns(problem: PipelineProblem) -> int:
    """Return what one micro-batch takes through all chunks and its gradients back, quickly run."""
    shape = problem.shape
    name = "inputs_ns" if shape.schedule.splits_backward else "backward_ns"
    quickest = [min(o.forward_ns + getattr(o, name) for o in layers.options) for layers in problem.classes]
    passes: int = sum(quickest[number] * count for number, count in Counter(problem.sequence).items())
    for part in fixed_parts(problem):
        passes += part.forward_ns + part.backward_ns
        passes -= part.weight_ns if shape.schedule.splits_backward else 0
    # The two chunks in the middle of a fold are on one stage.
    ways = 2 * (shape.num_chunks - 1 - shape.schedule.folds) if shape.num_stages > 1 else 0
    return problem.barrier_ns + passes + ways * problem.transfer_ns


def _bound(problem: PipelineProblem, rows: "Rows") -> int:
    """Return the better bound; that stages hold whole layers tells nothing where layers differ."""
    if not problem.is_uniform:
        return _weighted(problem, rows)
    return max(_weighted(problem, rows), _whole_layers(problem, rows))


def rules_out(problem: PipelineProblem, within_ns: int) -> bool:
    """Whether no assignment takes at most ``within_ns``, as far as whole layers of stages show it.

    Sees what the bounds do not: that layers are whole and that memory caps them, stage by stage. Where
    layers differ only chunks of as many layers, or one apart, count as assignments of several chunks.
    """
    if not problem.is_uniform:
        return _rules_out_in_order(problem, within_ns)
    capacity = most_layers(problem)
    return capacity is None or stage_ranges(problem, within_ns, capacity) is None


def may_exceed(problem: PipelineProblem, within_ns: int, capacity: Sequence[int]) -> bool:
    """Whether stages may hold more layers than some numbers in an assignment of at most ``within_ns``."""
    box = stage_ranges(problem, within_ns, [problem.num_layers] * problem.shape.num_stages)
    return box is not None and bool((box.high > np.array(capacity, dtype=np.int64)).any())


def stage_ranges(problem: PipelineProblem, within_ns: int, capacity: Sequence[int]) -> Box | None:
    """Return the layers that each stage may hold within a time and a capacity, None where there is no way."""
    facts = facts_of(problem)
    rows = through_rows(problem, facts)
    weights, constants = rows.weights, rows.constants
    if problem.shape.schedule in _ROWS_OF_ONE_CHUNK:
        more = _ROWS_OF_ONE_CHUNK[problem.shape.schedule](problem, facts)
        weights, constants = np.concatenate((weights, more.weights)), np.append(constants, more.constants)
    low = np.array(fewest_layers(problem), dtype=np.int64)
    low = _by_stage(problem, low)
    limits = within_ns * (1 + SAFETY) - constants
    box = Box(low=low, high=np.array(capacity, dtype=np.int64))
    whole_weights, whole_limits = np.floor(weights).astype(np.int64), np.ceil(limits).astype(np.int64)
    return narrow(box, whole_weights, whole_limits, problem.num_layers)


def _rules_out_in_order(problem: PipelineProblem, within_ns: int) -> bool:
    """Whether no stages of consecutive layers take at most so long: each has time for some passes only."""
    if problem.shape.schedule.splits_backward:
        return False
    rows = through_rows(problem, facts_of(problem))
    rooms = (within_ns * (1 + SAFETY) - rows.constants) / problem.shape.num_micro_batches
    if problem.shape.virtual_stages == 1:
        return in_order(problem, rooms_ns=rooms.tolist()) is None
    return not even_chunks_fit(problem, rooms_ns=rooms.tolist())


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Durations per stage (all chunks together), floating point.

    ``each`` is one layer's passes, their mean where layers differ, ``least_fill`` those of the quickest that
    others wait for: both, or forward alone where the last gradients of weights follow those of inputs.
    """

    each: float
    least_fill: float
    fixed: Reals
    fixed_fill: Reals
    fewest_fill: Reals
    update: float
    before_and_after: float

    @property
    def extra(self) -> float:
        """What a layer of stage 0 adds besides its passes, in units of one layer's passes."""
        return self.update / self.each if self.each else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """One path per stage: ``constants + weights @ layers of each stage``, and shares to add them up by.

    ``passes`` are how often it runs each stage's layers, forward and backward.
    """

    passes: Reals
    weights: Reals
    constants: Reals
    shares: Reals


def facts_of(problem: PipelineProblem) -> Facts:
    """Return what bounds need to know of a problem."""
    shape, fixed = problem.shape, fixed_parts(problem)
    splits, p, first = shape.schedule.splits_backward, shape.num_stages, fixed[shape.own(0)]
    work = np.array([part.forward_ns + part.backward_ns for part in fixed], dtype=np.float64)
    fill = np.array([part.forward_ns for part in fixed], dtype=np.float64) if splits else work
    quickest = [min(o.forward_ns + o.backward_ns for o in layers.options) for layers in problem.classes]
    filling = [min(o.forward_ns for o in layers.options) for layers in problem.classes]
    update, around = 0, problem.barrier_ns + (0 if splits else problem.tied_ns)
    around += sum(part.optimizer_ns for part in first)
    if problem.is_uniform:
        # Where layers differ the first stage may hold those that have least to update.
        update = problem.optimizer_ns
        update += 0 if problem.gather_overlaps else problem.gather_ns
        update += 0 if problem.reduce_overlaps or splits else problem.reduce_ns
    if not problem.gather_overlaps:
        around += sum(part.gather_ns for part in first)
    if not problem.reduce_overlaps and not splits:
        # What ends on another stage is not followed by the first one's reductions.
        around += sum(part.reduce_ns for part in first)
    return Facts(
        each=sum(quickest[number] for number in problem.sequence) / problem.num_layers,
        least_fill=float(min(filling if splits else quickest)),
        fixed=_by_stage(problem, work),
        fixed_fill=fill[:p],
        fewest_fill=np.array(fewest_layers(problem)[:p], dtype=np.float64),
        update=float(update),
        before_and_after=float(around),
    )


def _by_stage(problem: PipelineProblem, values: NDArray[Number]) -> NDArray[Number]:
    """Return the sum of what a stage's chunks have, per stage."""
    p = problem.shape.num_stages
    if problem.shape.schedule.folds:
        return values[:p] + values[p:][::-1]
    summed: NDArray[Number] = values.reshape(-1, p).sum(axis=0)
    return summed


def through_rows(problem: PipelineProblem, facts: Facts, *, blocking: bool | None = None) -> Rows:
    """Fill, all passes of a stage, drain; the stages before it hold at least their fewest layers.

    Where gradients of weights are passes of their own nothing need drain after the last of them.
    """
    p, m = problem.shape.num_stages, problem.shape.num_micro_batches
    filled = facts.fixed_fill + facts.least_fill * facts.fewest_fill
    fill = np.cumsum(filled) - filled
    passes = np.eye(p) * m
    weights = passes * facts.each
    weights[:, 0] += facts.update
    constants = facts.before_and_after + m * facts.fixed + fill
    constants += _through_transfers(
        problem, blocking=problem.transfer_blocks if blocking is None else blocking
    )
    shares = through_shares(weights.diagonal(), weights[:, 0])
    return Rows(passes=passes, weights=weights, constants=constants, shares=shares)


def _through_transfers(problem: PipelineProblem, *, blocking: bool) -> Reals:
    p, m, v = problem.shape.num_stages, problem.shape.num_micro_batches, problem.shape.virtual_stages
    if p == 1:
        return np.zeros(1)
    if problem.shape.schedule.splits_backward:
        return np.asarray(np.arange(p) * float(problem.transfer_ns), dtype=np.float64)
    hops = 2.0 * np.arange(p)
    if blocking:
        sends = np.full(p, 2.0 * v)
        sends[0] -= 1
        sends[-1] -= 1
        # While the pipeline fills and drains each stage but the first sends both ways.
        hops = hops - (np.arange(p) > 0) + m * sends
    return np.asarray(hops * problem.transfer_ns, dtype=np.float64)


def _gpipe_rows(problem: PipelineProblem, facts: Facts) -> Rows:
    """All passes of one micro-batch through all stages, and of all others through one."""
    p, m = problem.shape.num_stages, problem.shape.num_micro_batches
    passes = np.ones((p, p)) + np.eye(p) * (m - 1)
    weights = passes * facts.each
    weights[:, 0] += facts.update
    constants = facts.before_and_after + facts.fixed.sum() + (m - 1) * facts.fixed
    constants += _row_transfers(problem, passes, 2.0 * (p - 1))
    return Rows(passes=passes, weights=weights, constants=constants, shares=gpipe_shares(p, m, facts.extra))


def _1f1b_rows(problem: PipelineProblem, facts: Facts) -> Rows:
    """Fill, down and back with the first micro-batch, stay, down and back with the last one, drain.

    A stage that starts no forward pass after its first backward pass has no such path: there, all its
    passes, filled and drained, count instead.
    """
    p, m = problem.shape.num_stages, problem.shape.num_micro_batches
    kept = p - np.arange(p)
    twice = kept < m
    below = np.tril(np.ones((p, p)), -1)
    passes = below + np.where(twice[:, None], 2 * below.T, 0.0)
    passes += np.diag(np.where(twice, m - kept + 1, m).astype(np.float64))
    weights = passes * facts.each
    weights[:, 0] += facts.update
    hops = np.where(twice, 2.0 * np.arange(p) + 4.0 * (kept - 1), 2.0 * np.arange(p))
    constants = facts.before_and_after + passes @ facts.fixed + _row_transfers(problem, passes, hops)
    shares = pipeline_shares(passes.diagonal(), twice, facts.extra)
    return Rows(passes=passes, weights=weights, constants=constants, shares=shares)


_ROWS_OF_ONE_CHUNK: Final[Mapping[ScheduleName, Callable[[PipelineProblem, Facts], Rows]]] = {
    ScheduleName.GPIPE: _gpipe_rows,
    ScheduleName.ONE_FORWARD_ONE_BACKWARD: _1f1b_rows,
}
"""Schedules whose paths follow the first and the last micro-batch to the loss and back."""


def _row_transfers(problem: PipelineProblem, passes: Reals, hops: Reals | float) -> Reals:
    """Return the transfers on paths that run each stage's forward and backward pass equally often."""
    p = problem.shape.num_stages
    if p == 1:
        return np.zeros(1)
    if not problem.transfer_blocks:
        return np.zeros(p) + hops * problem.transfer_ns
    sends = np.full(p, 2.0)
    sends[0] = sends[-1] = 1.0
    blocked: Reals = passes @ sends * problem.transfer_ns
    return blocked


def _weighted(problem: PipelineProblem, rows: Rows) -> int:
    """Return the bound of all rows added up by their shares: every stage's layers count alike, or nearly."""
    layers = float((rows.shares @ rows.weights).min()) * problem.num_layers
    layers += forced_ns(problem, rows.shares @ rows.passes)
    return _safe((layers + float(rows.shares @ rows.constants)) / float(rows.shares.sum()))


def _whole_layers(problem: PipelineProblem, rows: Rows) -> int:
    """Return the shortest time in which the stages have room for all layers, each for whole ones.

    A layer counts on a row at least what it counts where that is least, and more on the row's own stage; in
    any time a stage holds no more layers than its own row leaves room for.
    """
    own = rows.weights.diagonal()
    elsewhere = np.where(np.eye(len(own), dtype=bool), np.inf, rows.weights).min(axis=1, initial=np.inf)
    common = np.minimum(elsewhere, own)
    each, constants = own - common, rows.constants + common * problem.num_layers
    if not each.all():
        return _safe(float(constants.max()))
    # As many as parts of layers would leave room for, then one after the other where there is room first.
    parts = float((problem.num_layers + (constants / each).sum()) / (1 / each).sum())
    held = np.floor((parts - constants) / each)
    within = max(parts, float(constants.max()))
    following = list(zip((constants + each * (held + 1)).tolist(), each.tolist(), strict=True))
    heapify(following)
    for _ in range(problem.num_layers - int(held.sum())):
        done, more = following[0]
        heapreplace(following, (done + more, more))
        within = max(within, done)
    return _safe(within)


def _safe(bound_ns: float) -> int:
    return max(int(bound_ns * (1 - SAFETY)), 0)
