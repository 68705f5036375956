"""The time of the fused attention core, from measured ones of the same device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.surface import Surface, fill_along, monotone
from planner.measurements import KernelTable
from planner.profile import Estimate, Profile, Provenance
from planner.units import FlopsPerSecond, Seconds
from planner.workload.operators import AttentionCore, Phase

Floats = NDArray[np.float64]

BACKWARD_OVER_FORWARD: Final = 2.95
"""Measured 2.9 to 3.0 for fused training kernels (2.5 times the FLOP, at a lower rate)."""
SHARE_OF_PRODUCT_RATE: Final = 0.6
"""Rate of an unmeasured attention core over that of large products (0.55 to 0.75 where both are known)."""
LAUNCH_SECONDS: Final = 4e-6
LEAST_ROWS: Final = 8
INTERPOLATED_ERROR: Final = 0.10
OTHER_SHAPE_ERROR: Final = 0.15
BACKWARD_ERROR: Final = 0.10
UNMEASURED_ERROR: Final = 0.40
"""Relative errors, one standard deviation."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CoreTable:
    """Seconds over (batch x heads, sequence) for one head dimension and mask, and the shapes measured."""

    head_dims: int
    """Query-key plus value dimension of one head."""
    surface: Surface
    hits: frozenset[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionTimes:
    """Forward and backward times of the attention core on one device."""

    tables: Mapping[tuple[int, bool], CoreTable]
    """Keyed by head dimension and whether the mask is causal."""
    best_rate: FlopsPerSecond
    sustained: float

    @classmethod
    def of(
        cls, profiles: Sequence[Profile], *, product_rate: FlopsPerSecond, sustained: float
    ) -> "AttentionTimes":
        """Return the times from the profiles' attention rows; without any, from the rate of large products."""
        tables = [table for profile in profiles for table in profile.tables("attention")]
        forward = [table for table in tables if table.phase == "forward" and table.dtype in {"bf16", "fp16"}]
        cores = _core_tables(forward)
        rates = [_best_rate(core, causal=causal) for (_, causal), core in cores.items()]
        best = max(rates, default=product_rate * SHARE_OF_PRODUCT_RATE)
        return cls(tables=cores, best_rate=best, sustained=sustained)

    def estimate(self, op: AttentionCore, *, phase: Phase) -> Estimate:
        """Return the time of one phase; backward is a measured multiple of forward."""
        forward = self._forward(op)
        if phase is Phase.FORWARD:
            return forward
        return Estimate(
            seconds=forward.seconds * BACKWARD_OVER_FORWARD,
            provenance=max(forward.provenance, Provenance.INTERPOLATED, key=list(Provenance).index),
            relative_error=float(np.hypot(forward.relative_error, BACKWARD_ERROR)),
        )

    def best_flops_per_second(self) -> FlopsPerSecond:
        """Return a rate that no core of these times exceeds."""
        return self.best_rate

    def _forward(self, op: AttentionCore) -> Estimate:
        if not self.tables:
            seconds = LAUNCH_SECONDS + op.forward_flops / self.best_rate
            return Estimate(seconds=seconds, provenance=Provenance.DATASHEET, relative_error=UNMEASURED_ERROR)
        (head_dim, causal), core = self._nearest(op)
        sequence = float(np.sqrt(op.query_length * op.key_length))
        same = (head_dim, head_dim, causal) == (op.head_dim, op.value_dim, op.causal)
        scale = (op.head_dim + op.value_dim) / core.head_dims * (2.0 if causal and not op.causal else 1.0)
        scale *= 0.5 if op.causal and not causal else 1.0
        seconds = core.surface(op.batch * op.heads, sequence) * scale * self.sustained
        exact = same and (op.batch * op.heads, sequence) in core.hits
        return Estimate(
            seconds=seconds,
            provenance=Provenance.MEASURED if exact else Provenance.INTERPOLATED,
            relative_error=INTERPOLATED_ERROR if same else OTHER_SHAPE_ERROR,
        )

    def _nearest(self, op: AttentionCore) -> tuple[tuple[int, bool], CoreTable]:
        """Return the table of the nearest head dimension, of the same mask where there is one."""
        dim = (op.head_dim + op.value_dim) / 2
        return min(
            self.tables.items(),
            key=lambda item: (item[0][1] != op.causal, abs(np.log(item[0][0] / dim)), item[0][0]),
        )


def _core_tables(tables: Sequence[KernelTable]) -> dict[tuple[int, bool], CoreTable]:
    rows: dict[tuple[int, bool], list[tuple[int, int, Seconds]]] = {}
    for table in tables:
        names = ("batch", "heads", "sequence", "head_dim", "value_dim", "causal")
        columns = [table.column(name).tolist() for name in names]
        for batch, heads, sequence, head_dim, value_dim, causal, seconds in zip(
            *columns, table.seconds.tolist(), strict=True
        ):
            if head_dim == value_dim:
                rows.setdefault((head_dim, bool(causal)), []).append((batch * heads, sequence, seconds))
    return {key: _core_table(key[0], values) for key, values in rows.items() if len(values) >= LEAST_ROWS}


def _core_table(head_dim: int, rows: list[tuple[int, int, Seconds]]) -> CoreTable:
    by_shape: dict[tuple[int, int], list[Seconds]] = {}
    for heads, sequence, seconds in rows:
        by_shape.setdefault((heads, sequence), []).append(seconds)
    axes = [np.unique(np.array(sizes, dtype=np.float64)) for sizes in zip(*by_shape, strict=True)]
    # Below the measured sizes the launch dominates; the edge values hold there.
    base = np.add.outer(np.log(axes[0]), 2.0 * np.log(axes[1]))
    deviation = np.full(base.shape, np.nan)
    for shape, seconds_of_shape in by_shape.items():
        node = tuple(int(axis.searchsorted(size)) for axis, size in zip(axes, shape, strict=True))
        deviation[node] = np.log(np.median(seconds_of_shape)) - base[node]
    log_axes = tuple(np.log(axis) for axis in axes)
    log_seconds = monotone(base + fill_along(deviation, log_axes))
    return CoreTable(
        head_dims=2 * head_dim,
        surface=Surface(log_axes=log_axes, log_seconds=log_seconds),
        hits=frozenset(by_shape),
    )


def _best_rate(core: CoreTable, *, causal: bool) -> FlopsPerSecond:
    """Return the best rate at the nodes: between them its logarithm is a mean of theirs."""
    heads, sequences = (np.exp(axis) for axis in core.surface.log_axes)
    pairs = np.outer(heads, sequences**2) * (0.5 if causal else 1.0)
    flops = 2.0 * pairs * core.head_dims
    return float((flops / np.exp(core.surface.log_seconds)).max())
