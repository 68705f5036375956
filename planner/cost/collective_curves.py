"""Measured collectives inside one node: seconds over payload and number of ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.cost.surface import Surface, fill_along, monotone
from planner.measurements import CollectiveRow
from planner.profile import Estimate, Provenance
from planner.units import Bytes, Seconds
from planner.workload.operators import Collective

MEASURED_ERROR: Final = 0.05
INTERPOLATED_ERROR: Final = 0.08
OUTSIDE_ERROR: Final = 0.20
"""Relative errors, one standard deviation."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NodeCurve:
    """Seconds of one operation over (payload, ranks), and what was measured."""

    surface: Surface
    hits: frozenset[tuple[Bytes, int]]

    def estimate(self, payload_bytes: Bytes, ranks: int) -> Estimate:
        """Return the time for one payload and number of ranks."""
        seconds = self.surface(payload_bytes, ranks)
        if (payload_bytes, ranks) in self.hits:
            return Estimate(seconds=seconds, provenance=Provenance.MEASURED, relative_error=MEASURED_ERROR)
        sizes = np.log((payload_bytes, ranks))
        inside = all(
            axis[0] <= size <= axis[-1] for axis, size in zip(self.surface.log_axes, sizes, strict=True)
        )
        return Estimate(
            seconds=seconds,
            provenance=Provenance.INTERPOLATED,
            relative_error=INTERPOLATED_ERROR if inside else OUTSIDE_ERROR,
        )


NodeCurves = Mapping[Collective, NodeCurve]


def node_curves(rows: Sequence[CollectiveRow]) -> NodeCurves:
    """Return a curve for every operation that was measured inside one node."""
    curves = {}
    for operation in Collective:
        inside = [row for row in rows if row.operation == operation and row.ranks_per_node == row.world_size]
        if inside:
            curves[operation] = _curve(inside)
    return curves


def _curve(rows: Sequence[CollectiveRow]) -> NodeCurve:
    best: dict[tuple[Bytes, int], Seconds] = {}
    for row in rows:
        key = (row.payload_bytes, row.world_size)
        best[key] = min(row.seconds, best.get(key, np.inf))
    payloads = _axis([payload for payload, _ in best])
    ranks = _axis([float(ranks) for _, ranks in best])
    log_seconds = np.full((len(payloads), len(ranks)), np.nan)
    for (payload, size), seconds in best.items():
        log_seconds[payloads.searchsorted(payload), ranks.searchsorted(size)] = np.log(seconds)
    log_axes = (np.log(payloads), np.log(ranks))
    filled = fill_along(log_seconds, log_axes)
    return NodeCurve(surface=Surface(log_axes=log_axes, log_seconds=monotone(filled)), hits=frozenset(best))


def _axis(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the distinct sizes; a lone one gets a neighbour, since a line needs two ends."""
    distinct = np.unique(np.array(values, dtype=np.float64))
    return distinct if len(distinct) > 1 else np.concatenate([distinct, 2.0 * distinct])
