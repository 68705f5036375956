"""What memory makes layers take beyond their quickest passes: those run again, for nothing to be kept."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.pipeline import LayerOption, PipelineProblem
from planner.search.orders import kept_at_first_backward
from planner.search.rows import fewest_layers, fixed_parts
from planner.strategy import ScheduleName

Reals = NDArray[np.float64]

ROUNDING: Final = 1e-9
"""Relative margin for sums in floating point."""
KEEPS_ALL: Final = (ScheduleName.GPIPE, ScheduleName.BREADTH_FIRST)
"""Schedules that keep every micro-batch before the first backward pass."""


def forced_ns(problem: PipelineProblem, passes: Reals) -> float:
    """Return what layers take at least beyond their quickest passes, a stage's counted ``passes`` times.

    Of equal layers under schedules with whole backward passes. All chunks of stage i keep at least
    min(p - i, m) micro-batches at its first backward pass. As many layers as then fit in their quickest
    way are free; of each one more what a stage has no room for must be saved by others, at the best rate of
    bytes for time, cheapest stages first.
    """
    if not problem.is_uniform or problem.shape.schedule.splits_backward:
        return 0.0
    trade = _best_trade(problem.options)
    if trade is None:
        return 0.0
    most_bytes, least_bytes, ns_per_byte = trade
    kept, room = _kept(problem), _room(problem)
    free = np.maximum(room / (problem.static_bytes + kept * most_bytes), 0.0)
    left = problem.num_layers - float(free.sum())
    if left <= 0:
        return 0.0
    held = problem.static_bytes + kept * least_bytes
    further = np.full(len(kept), left) if not held.all() else np.maximum(room / held, 0.0) - free
    prices = passes * ns_per_byte * (problem.static_bytes / kept + most_bytes)
    order = np.argsort(prices)
    before = np.cumsum(further[order]) - further[order]
    taken = np.minimum(further[order], np.maximum(left - before, 0.0))
    return float(taken @ prices[order])


def forced_by_layers(
    problem: PipelineProblem, stage: int, layers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return what some numbers of layers, [number, chunk], take at least beyond their quickest passes.

    And which of them may fit. Looks at a stage's first backward pass: what there is no room for is saved by
    the chunks that keep most micro-batches first.
    """
    nothing = np.zeros(len(layers), dtype=np.int64), np.ones(len(layers), dtype=np.bool_)
    if problem.shape.schedule.splits_backward:
        return nothing
    most = min(option.saved_bytes for option in problem.options)
    trade = _best_trade(problem.options) or (most, most, 0.0)
    most_bytes, least_bytes, ns_per_byte = trade
    parts = fixed_parts(problem)[problem.shape.own(stage)]
    kept = np.array(kept_at_first_backward(problem.shape, stage), dtype=np.int64)
    fixed = sum(
        part.static_bytes + count * part.saved_bytes for part, count in zip(parts, kept.tolist(), strict=True)
    )
    working = min(option.working_bytes for option in problem.options)
    busy = np.maximum(np.where(layers[:, -1] > 0, working, 0), parts[-1].working_bytes)
    held = layers.sum(axis=1) * problem.static_bytes + layers @ kept * most_bytes + busy
    beyond = held + fixed + problem.base_bytes - problem.limit_bytes
    order = np.argsort(-kept, kind="stable")
    spare = (layers * kept)[:, order] * (most_bytes - least_bytes)
    before = np.cumsum(spare, axis=1) - spare
    saved = np.clip(beyond[:, None] - before, 0, spare)
    each = (saved / np.maximum(kept[order], 1)).sum(axis=1) * (ns_per_byte * (1 - ROUNDING))
    return each.astype(np.int64), beyond <= spare.sum(axis=1)


def _best_trade(options: tuple[LayerOption, ...]) -> tuple[int, int, float] | None:
    """Return the bytes of the quickest options and of any, and the least time that one byte less costs."""
    times = [option.forward_ns + option.backward_ns for option in options]
    saved = [option.saved_bytes for option in options]
    quickest = min(times)
    most = min(own for own, time in zip(saved, times, strict=True) if time == quickest)
    rates = [(time - quickest) / (most - own) for own, time in zip(saved, times, strict=True) if own < most]
    return (most, min(saved), min(rates)) if rates else None


def _kept(problem: PipelineProblem) -> Reals:
    """Return how many micro-batches each chunk of a stage keeps at least at its first backward pass."""
    p, m = problem.shape.num_stages, problem.shape.num_micro_batches
    if problem.shape.schedule in KEEPS_ALL:
        return np.full(p, float(m))
    return np.minimum(np.arange(p, 0, -1), m).astype(np.float64)


def _room(problem: PipelineProblem) -> Reals:
    """Return what stages have for layers at their first backward pass, which their last chunk runs."""
    shape, parts, fewest = problem.shape, fixed_parts(problem), fewest_layers(problem)
    working = min(option.working_bytes for option in problem.options)
    found = []
    for stage, kept in enumerate(_kept(problem).tolist()):
        own = shape.own(stage)
        held = sum(part.static_bytes + kept * part.saved_bytes for part in parts[own])
        busy = working if fewest[own][-1] else 0
        if stage == shape.num_stages - 1:
            busy = max(busy, parts[own][-1].working_bytes)
        found.append(problem.limit_bytes - problem.base_bytes - held - busy)
    return np.array(found, dtype=np.float64)
