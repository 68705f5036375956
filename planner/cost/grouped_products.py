"""The time of products of many equal matrices in one call: the experts of a mixture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.cost.envelope import Envelope
from planner.profile import Profile
from planner.units import BytesPerSecond, FlopsPerSecond, Seconds
from planner.workload.operators import Phase

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]
GroupedShape = tuple[int, int, int, int]
"""Groups, and rows, columns and inner size of each group's forward product, in every phase."""

OVER_SINGLE: Final[Mapping[Phase, float]] = {
    Phase.FORWARD: 0.93,
    Phase.INPUT_GRADIENT: 0.93,
    Phase.WEIGHT_GRADIENT: 1.00,
}
"""Time of a grouped product over so many products one after the other, which leave gaps between them.

Medians of 24 shapes with 128 to 9832 rows on B200 and A100: 0.93 (forward, quartiles 0.83 to 0.98), 0.92
(input gradient, 0.83 to 0.96); weight gradients 0.98 where their accumulation does not hold them up.
"""
ACCUMULATED_BYTES: Final = 4 + 4
"""The accumulated gradient of a weight is read and written in fp32, once for each product."""
ACCUMULATION_SHARE: Final = 0.85
"""Share of the memory's bandwidth that accumulation reaches: 0.8 to 0.95 on B200 with 128 to 256 rows."""
OVER_SINGLE_ERROR: Final = 0.12
EXACT_ERROR: Final = 0.05
"""Relative errors, one standard deviation: of the ratio above; run to run."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GroupedTimes:
    """What grouped products add to the time of single ones, bounded by those that were measured."""

    points: Mapping[Phase, Envelope]
    hits: Mapping[Phase, frozenset[GroupedShape]]
    best_flops_per_second: FlopsPerSecond
    """The best rate among measured ones."""
    bytes_per_second: BytesPerSecond

    @classmethod
    def of(
        cls, profiles: Sequence[Profile], *, dtypes: Sequence[str], bytes_per_second: BytesPerSecond
    ) -> "GroupedTimes":
        """Return the grouped products of the profiles in any of the formats."""
        rows = {phase: grouped_rows(profiles, dtypes=dtypes, phase=phase) for phase in OVER_SINGLE}
        rates = [
            float((2.0 * shapes.astype(np.float64).prod(axis=1) / seconds).max(initial=0.0))
            for shapes, seconds in rows.values()
        ]
        return cls(
            points={phase: Envelope.of(shapes, seconds) for phase, (shapes, seconds) in rows.items()},
            hits={
                phase: frozenset((groups, m, n, k) for groups, m, n, k in shapes.tolist())
                for phase, (shapes, _) in rows.items()
            },
            best_flops_per_second=max(rates),
            bytes_per_second=bytes_per_second,
        )

    def seconds(self, shape: GroupedShape, *, phase: Phase, single: Seconds) -> Seconds:
        """Return the time of all groups; ``single`` is that of one group's product by itself."""
        return self.points[phase].clip(self.unbounded(shape, phase=phase, single=single), *shape)

    def unbounded(self, shape: GroupedShape, *, phase: Phase, single: Seconds) -> Seconds:
        """Return the time of all groups by that of one, whatever was measured of grouped ones."""
        groups, _, columns, inner = shape
        together = OVER_SINGLE[phase] * groups * single
        if phase is Phase.WEIGHT_GRADIENT:
            accumulated = ACCUMULATED_BYTES * float(groups) * columns * inner
            together = max(together, accumulated / (ACCUMULATION_SHARE * self.bytes_per_second))
        return together

    def is_measured(self, shape: GroupedShape, *, phase: Phase) -> bool:
        """Tell whether this very shape was measured."""
        return shape in self.hits[phase]


def grouped_rows(
    profiles: Sequence[Profile], *, dtypes: Sequence[str], phase: Phase
) -> tuple[Shapes, Floats]:
    """Return measured shapes [rows, 4] as (groups, m, n, k) and their seconds."""
    tables = [
        table
        for profile in profiles
        for table in profile.tables("grouped_matrix_product")
        if table.dtype in dtypes and table.phase == phase
    ]
    shapes = [np.stack([table.column(dim) for dim in ("groups", "m", "n", "k")], axis=1) for table in tables]
    return (
        np.concatenate([np.zeros((0, 4), dtype=np.int64), *shapes]),
        np.concatenate([np.zeros(0), *(table.seconds for table in tables)]),
    )
