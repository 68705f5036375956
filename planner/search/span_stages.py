"""How many layers each stage of a mixed chain may hold: whole layers, counted stage by stage.

What one stage adds to a limit at least is found for every number of its layers, then the numbers of all
stages are chosen together, limit by limit: dynamic programming over stages and layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.cost.schedules import PipelineShape
from planner.search.rows import Integers
from planner.search.spans import Mask, Spans

NEVER: Final = 1 << 60
"""More than any limit: what no chunk can hold."""
ROUNDS: Final = 4
"""Rounds of narrowing; more gain little, and fewer are never wrong."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sums over some chunks that have a limit each: ``amounts`` of a chunk's spans, [span, limit]."""

    chunks: Sequence[int]
    amounts: Callable[[Spans, int], Integers]
    limits: Integers


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSizes:
    """Fewest and most layers of every stage in any plan within some limits."""

    low: Integers
    high: Integers


def stage_sizes(
    shape: PipelineShape, spans: Sequence[Spans], limits: Sequence[Limits], *, num_layers: int
) -> StageSizes | None:
    """Return how many layers stages may hold under some limits, None when there is no way."""
    allowed = np.ones((shape.num_stages, num_layers + 1), dtype=np.bool_)
    tables = []
    for limit in limits:
        table = _by_stage(shape, spans, limit, num_layers)
        allowed &= (table <= NEVER // 2).any(axis=2)
        tables.append((table, limit.limits, len(limit.chunks) == len(spans)))
    for _ in range(ROUNDS):
        before = allowed
        for table, most, _ in tables:
            allowed = allowed & _within(table, allowed, most)
        narrowed = _placed(allowed, num_layers)
        if narrowed is None:
            return None
        allowed = narrowed
        if (allowed == before).all():
            break
    if any(is_whole and not _can_place(table, allowed, most) for table, most, is_whole in tables):
        return None
    return StageSizes(low=allowed.argmax(axis=1), high=num_layers - allowed[:, ::-1].argmax(axis=1))


def _by_stage(shape: PipelineShape, spans: Sequence[Spans], limit: Limits, num_layers: int) -> Integers:
    """Return what each stage adds at least when it holds so many layers: [stage, layers, limit]."""
    own = set(limit.chunks)
    tables = []
    for stage in range(shape.num_stages):
        if own.isdisjoint(shape.chunks_of(stage)):
            tables.append(np.zeros((num_layers + 1, len(limit.limits)), dtype=np.int64))
            continue
        table = np.full((num_layers + 1, len(limit.limits)), NEVER, dtype=np.int64)
        table[0] = 0
        for chunk in shape.chunks_of(stage):
            sizes = spans[chunk].end - spans[chunk].start
            amounts = (
                limit.amounts(spans[chunk], chunk) if chunk in own else np.zeros((len(sizes), 1), np.int64)
            )
            wider = np.full_like(table, NEVER)
            for size in np.unique(sizes).tolist():
                added = table[: num_layers + 1 - size] + amounts[sizes == size].min(axis=0)
                wider[size:] = np.minimum(wider[size:], added)
            table = np.minimum(wider, NEVER)
        tables.append(table)
    return np.stack(tables)


def _within(table: Integers, allowed: Mask, limits: Integers) -> Mask:
    """Return which numbers leave every limit kept, the other stages adding at least their least."""
    least = np.where(allowed[:, :, None], table, NEVER).min(axis=1)
    room = limits - np.minimum(least, NEVER // len(least)).sum(axis=0)
    fits: Mask = (table - least[:, None] <= room).all(axis=2)
    return fits


def _placed(allowed: Mask, num_layers: int) -> Mask | None:
    """Return which numbers let all layers be placed, None when none do."""
    if not allowed.any(axis=1).all():
        return None
    low = allowed.argmax(axis=1)
    high = num_layers - allowed[:, ::-1].argmax(axis=1)
    counts = np.arange(num_layers + 1)
    fewest, most = num_layers - (high.sum() - high), num_layers - (low.sum() - low)
    kept: Mask = allowed & (counts >= fewest[:, None]) & (counts <= most[:, None])
    return kept if kept.any(axis=1).all() else None


def _can_place(table: Integers, allowed: Mask, limits: Integers) -> bool:
    """Whether each limit alone leaves a way to give all layers to stages."""
    num_layers = table.shape[1] - 1
    reached = np.full(table.shape[1:], NEVER, dtype=np.int64)
    reached[0] = 0
    for own, may in zip(table, allowed, strict=True):
        wider = np.full_like(reached, NEVER)
        for size in np.flatnonzero(may).tolist():
            wider[size:] = np.minimum(wider[size:], reached[: num_layers + 1 - size] + own[size])
        reached = np.minimum(wider, NEVER)
    return bool((reached[num_layers] <= limits).all())
