"""Ranks that share the cores of a processor: what one of them works takes longer while others work too."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from planner.cost.layout_costs import LayoutCosts, PartCost
from planner.cost.tally import Cause, Tally
from planner.strategy import Layout

WORK: Final = frozenset({Cause.COMPUTE, Cause.RECOMPUTE, Cause.OVERHEAD, Cause.OPTIMIZER})
"""What a core does, rather than links."""


def slowdown(layout: Layout, *, threads_per_core: Sequence[float]) -> float:
    """Return how many times as long work takes where each rank shares its core with so many, itself counted.

    Without a pipeline all work at once, and wait for those on the fullest core. A stage of one works in
    m v of m v + p - 1 slots: the share of the time in which others of a core find it there.
    """
    stages = layout.mesh.pipeline_parallel
    if stages == 1:
        return max(threads_per_core, default=1.0)
    passes = layout.batch.num_micro_batches * layout.schedule.virtual_stages
    others = fmean(threads_per_core) - 1 if threads_per_core else 0.0
    return 1 + others * passes / (passes + stages - 1)


def slowed(costs: LayoutCosts, factor: float) -> LayoutCosts:
    """Return the figures of a layout whose ranks take so many times as long for what they work."""
    return replace(
        costs,
        layers=tuple(_slowed(part, factor) for part in costs.layers),
        first=_slowed(costs.first, factor),
        last=_slowed(costs.last, factor),
        between_passes=costs.between_passes.times(factor),
    )


def _slowed(part: PartCost, factor: float) -> PartCost:
    split = replace(
        part.split,
        weight_seconds=part.split.weight_seconds * factor,
        more=_slowed_work(part.split.more, factor),
    )
    return replace(
        part,
        forward=_slowed_work(part.forward, factor),
        backward=_slowed_work(part.backward, factor),
        optimizer=_slowed_work(part.optimizer, factor),
        split=split,
    )


def _slowed_work(amount: Tally, factor: float) -> Tally:
    """Return an amount whose work takes longer; collectives were measured on shared cores themselves."""
    causes = {cause: value * (factor if cause in WORK else 1.0) for cause, value in amount.causes.items()}
    ratio = sum(causes.values()) / amount.seconds if amount.seconds else 1.0
    longer = amount.times(ratio)
    return Tally(causes, longer.provenance, longer.error_seconds)
