"""The time of the fused attention core, from measured ones of the same device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.attention_rows import CoreKey, CoreRows, core_rows
from planner.cost.surface import Surface, fill_along, left_out, monotone
from planner.profile import Estimate, Profile, Provenance
from planner.units import FlopsPerSecond, Seconds
from planner.workload.operators import AttentionCore, Module, Phase, mask_share

Floats = NDArray[np.float64]

BACKWARD_OVER_FORWARD: Final = 3.0
"""Time of backward over forward where both run at their best: 2.9 to 3.1 on A100 and B200."""
BACKWARD_FLOPS: Final = 2.5
"""Five products in backward for two in forward."""
BACKWARD_EXPONENT: Final = 0.6
"""Backward suffers less than forward where there is little to do: the ratio falls with this power of the
rate that forward reaches (measured 1.9 at 0.43 of the best rate, 1.2 at 0.2 to 0.3)."""
SHARE_OF_PRODUCT_RATE: Final = 0.65
"""Best rate of an unmeasured core over that of products (0.66 on A100, 0.70 on H100, 0.62 on B200)."""
UNMEASURED_START: Final[Seconds] = 20e-6
"""Forward cores of one short sequence take 20 to 50 us however little they compute."""
LEAST_ROWS: Final = 4
"""A table of fewer shapes tells nothing between them."""
NORMAL_MEDIAN: Final = 1.4826
EXACT_ERROR: Final = 0.05
PACE_ERROR: Final = 0.08
"""Kernels of a running step take 0.85 to 1.0 of the fastest bursts on A100 and B200: no factor, but this."""
OTHER_SHAPE_ERROR: Final = 0.12
BACKWARD_ERROR: Final = 0.08
UNMEASURED_ERROR: Final = 0.40
"""Relative errors, one standard deviation."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CoreTable:
    """Seconds over (batch x heads, sequence) for one head dimension and mask."""

    dims: int
    """Query-key plus value dimension of one head."""
    causal: bool
    surface: Surface
    hits: frozenset[tuple[int, int]]
    best_flops_per_second: FlopsPerSecond
    misses: Floats
    """log of what a node would be without its own row over what it is; NaN at corners and gaps."""

    @property
    def relative_error(self) -> float:
        """One standard deviation of the error when a node is found from its neighbours."""
        known = self.misses[~np.isnan(self.misses)]
        return NORMAL_MEDIAN * float(np.median(np.abs(known))) if len(known) else OTHER_SHAPE_ERROR

    def seconds(self, op: AttentionCore) -> Seconds:
        """Return the forward time, in proportion to the FLOP where dimension or mask differ."""
        sequence = (op.query_length * op.key_length) ** 0.5
        scale = (op.head_dim + op.value_dim) / self.dims
        scale *= op.mask_share / mask_share(op.key_length, causal=self.causal)
        return scale * self.surface(op.batch * op.heads, sequence)

    def slowed(self, factor: float) -> "CoreTable":
        """Return the table of a device that takes ``factor`` times as long, on which nothing was measured."""
        surface = self.surface
        return replace(
            self,
            surface=Surface(
                log_axes=surface.log_axes,
                log_seconds=surface.log_seconds + np.log(factor),
                growth=surface.growth,
            ),
            hits=frozenset(),
            best_flops_per_second=self.best_flops_per_second / factor,
        )

    def core(self, heads: int, sequence: int) -> AttentionCore:
        """Return the core of a measured shape; it counts batch x heads as heads."""
        return AttentionCore(
            name="core",
            module=Module.CORE_ATTENTION,
            batch=1,
            query_length=sequence,
            key_length=sequence,
            heads=heads,
            kv_heads=heads,
            head_dim=self.dims // 2,
            value_dim=self.dims - self.dims // 2,
            causal=self.causal,
        )

    def has(self, op: AttentionCore) -> bool:
        """Tell whether this very shape was measured."""
        same_length = op.query_length == op.key_length
        return self.fits(op) and same_length and (op.batch * op.heads, op.query_length) in self.hits

    def fits(self, op: AttentionCore) -> bool:
        """Tell whether head dimension and mask are those of the table."""
        is_whole = op.mask_share == mask_share(op.key_length, causal=op.causal)
        same_mask = self.causal == op.causal and is_whole
        return same_mask and op.head_dim == op.value_dim and 2 * op.head_dim == self.dims


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionTimes:
    """Forward and backward times of the attention core on one device."""

    tables: Sequence[CoreTable]
    best_forward_rate: FlopsPerSecond
    backward_over_forward: float
    lender_error: float = 0.0
    """What a relative's times add to the error; zero where the device itself was measured."""
    provenance: Provenance = Provenance.INTERPOLATED
    """Of shapes that were not measured."""

    @classmethod
    def of(
        cls, profiles: Sequence[Profile], *, dtypes: Sequence[str], product_rate: FlopsPerSecond
    ) -> "AttentionTimes":
        """Return the times from the profiles' rows; without any, from the rate of large products."""
        forward = core_rows(profiles, dtypes=dtypes, phase=Phase.FORWARD)
        backward = core_rows(profiles, dtypes=dtypes, phase=Phase.BACKWARD)
        tables = core_tables(forward)
        rates = [table.best_flops_per_second for table in tables]
        best = max(rates, default=SHARE_OF_PRODUCT_RATE * product_rate)
        ratio = _backward_ratio(forward, backward, best_rate=best)
        return cls(
            tables=tables,
            best_forward_rate=best,
            backward_over_forward=BACKWARD_OVER_FORWARD if ratio is None else ratio,
        )

    def lent(self, factor: float, *, relative_error: float, provenance: Provenance) -> "AttentionTimes":
        """Return the times of a relative that takes ``factor`` times as long."""
        return replace(
            self,
            tables=[table.slowed(factor) for table in self.tables],
            best_forward_rate=self.best_forward_rate / factor,
            lender_error=relative_error,
            provenance=provenance,
        )

    @property
    def num_rows(self) -> int:
        """Shapes that were measured on the device itself, forward."""
        return sum(len(table.hits) for table in self.tables)

    def over(self, other: "AttentionTimes") -> float:
        """Return the median of these times over other ones, at the shapes that were measured here."""
        ratios = [
            table.surface(heads, sequence)
            / other.estimate(table.core(heads, sequence), phase=Phase.FORWARD).seconds
            for table in self.tables
            for heads, sequence in sorted(table.hits)
        ]
        return float(np.median(ratios))

    @property
    def best_flops_per_second(self) -> FlopsPerSecond:
        """A rate that no core of these times exceeds, forward or backward."""
        return self.best_forward_rate * max(1.0, BACKWARD_FLOPS / self.backward_over_forward)

    def estimate(self, op: AttentionCore, *, phase: Phase) -> Estimate:
        """Return the time of one phase."""
        forward = self._forward(op)
        if phase is Phase.FORWARD:
            return forward
        share = min(1.0, op.forward_flops / forward.seconds / self.best_forward_rate)
        ratio = self.backward_over_forward * share**BACKWARD_EXPONENT
        return Estimate(
            seconds=forward.seconds * ratio,
            provenance=self.provenance if self.tables else Provenance.DATASHEET,
            relative_error=float(np.hypot(forward.relative_error, BACKWARD_ERROR)),
        )

    def _forward(self, op: AttentionCore) -> Estimate:
        if not self.tables:
            return Estimate(
                seconds=UNMEASURED_START + op.forward_flops / self.best_forward_rate,
                provenance=Provenance.DATASHEET,
                relative_error=UNMEASURED_ERROR,
            )
        table = min(self.tables, key=lambda table: _distance(table, op))
        exact = table.has(op)
        here = EXACT_ERROR if exact else table.relative_error
        elsewhere = 0.0 if table.fits(op) else OTHER_SHAPE_ERROR
        return Estimate(
            seconds=table.seconds(op),
            provenance=Provenance.MEASURED if exact else self.provenance,
            relative_error=float(np.sqrt(here**2 + elsewhere**2 + PACE_ERROR**2 + self.lender_error**2)),
        )


def _distance(table: CoreTable, op: AttentionCore) -> tuple[bool, float, int]:
    """Order tables by nearness to an operator: same mask first, then head dimension."""
    dims = op.head_dim + op.value_dim
    return (table.causal != op.causal, abs(float(np.log(table.dims / dims))), table.dims)


def core_tables(rows_by_key: Mapping[CoreKey, CoreRows]) -> list[CoreTable]:
    """Return a table for each head dimension and mask of which enough shapes were measured."""
    return [_table(rows) for rows in rows_by_key.values() if len(rows.seconds) >= LEAST_ROWS]


def _table(rows: CoreRows) -> CoreTable:
    axes = [_axis(column) for column in rows.shapes.T]
    log_axes = tuple(np.log(axis) for axis in axes)
    # Work grows with heads times sequence squared: deviations from that are smooth.
    base = np.add.outer(log_axes[0], 2.0 * log_axes[1])
    deviation = np.full(base.shape, np.nan)
    nodes = tuple(axis.searchsorted(column) for axis, column in zip(axes, rows.shapes.T, strict=True))
    deviation[nodes] = np.log(rows.seconds) - base[nodes]
    log_seconds = monotone(base + fill_along(deviation, log_axes))
    log_flops = base + np.log(2.0 * rows.dims * (0.5 if rows.causal else 1.0))
    return CoreTable(
        dims=rows.dims,
        causal=rows.causal,
        surface=Surface(log_axes=log_axes, log_seconds=log_seconds, growth=(1.0, 2.0)),
        hits=frozenset((heads, sequence) for heads, sequence in rows.shapes.tolist()),
        best_flops_per_second=float(np.exp((log_flops - log_seconds).max())),
        misses=left_out(deviation, log_axes) - deviation,
    )


def _axis(column: NDArray[np.int64]) -> Floats:
    """Return the distinct sizes; a lone one gets a neighbour, since a line needs two ends."""
    sizes = np.unique(column).astype(np.float64)
    return sizes if len(sizes) > 1 else np.concatenate([sizes, 2.0 * sizes])


def _backward_ratio(
    forward: Mapping[CoreKey, CoreRows], backward: Mapping[CoreKey, CoreRows], *, best_rate: FlopsPerSecond
) -> float | None:
    """Return backward over forward at the best rate, from shapes that were measured both ways."""
    ratios = []
    for key in forward.keys() & backward.keys():
        there = forward[key].by_shape()
        for shape, seconds in backward[key].by_shape().items():
            if shape in there:
                share = min(1.0, forward[key].flops(shape) / there[shape] / best_rate)
                ratios.append(seconds / there[shape] / share**BACKWARD_EXPONENT)
    return float(np.median(ratios)) if len(ratios) >= LEAST_ROWS else None
