"""Measured attention cores of one device, by head dimension and mask."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.measurements import KernelTable
from planner.profile import Profile
from planner.units import Flops, Seconds
from planner.workload.operators import Phase

CoreKey = tuple[int, bool]
"""Query-key plus value dimension of a head, and whether the mask is causal."""
CoreShape = tuple[int, int]
"""Batch x heads, and sequence."""
CoreTime = tuple[bool, Seconds]
"""Whether a burst was timed, and the seconds: the least of a shape counts."""

COLUMNS: Final = ("head_dim", "value_dim", "causal", "batch", "heads", "sequence")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CoreRows:
    """Distinct shapes [rows, 2] as (batch x heads, sequence) with the fastest seconds of each.

    The fastest, because the slower rows of a shape write a key-value cache of more heads beside it,
    which training does not.
    """

    dims: int
    """Query-key plus value dimension of one head."""
    causal: bool
    shapes: NDArray[np.int64]
    seconds: NDArray[np.float64]

    def by_shape(self) -> dict[tuple[int, int], Seconds]:
        """Return the seconds of each (batch x heads, sequence)."""
        keys = ((heads, sequence) for heads, sequence in self.shapes.tolist())
        return dict(zip(keys, self.seconds.tolist(), strict=True))

    def flops(self, shape: tuple[int, int]) -> Flops:
        """Return the forward FLOP of a shape, half of the pairs where the mask is causal."""
        heads, sequence = shape
        return 2.0 * heads * sequence**2 * self.dims * (0.5 if self.causal else 1.0)


def core_rows(
    profiles: Sequence[Profile], *, dtypes: Sequence[str], phase: Phase
) -> Mapping[CoreKey, CoreRows]:
    """Return the rows of one phase, keyed by dimensions of a head and whether the mask is causal.

    A shape that was timed at the pace of a running step does not need its bursts.
    """
    fastest: dict[CoreKey, dict[CoreShape, CoreTime]] = {}
    for profile in profiles:
        for table in profile.tables("attention"):
            if table.phase == phase and table.dtype in dtypes:
                for key, shape, time in _rows(profile, table):
                    of_key = fastest.setdefault(key, {})
                    of_key[shape] = min(time, of_key.get(shape, time))
    return {key: _core_rows(key, rows) for key, rows in sorted(fastest.items())}


def _rows(profile: Profile, table: KernelTable) -> Iterator[tuple[CoreKey, CoreShape, CoreTime]]:
    bursts = profile.facts.get("burst_sources", ())
    is_burst = [source.source in bursts for source in profile.sources]
    columns = [table.column(name).tolist() for name in COLUMNS]
    for head_dim, value_dim, causal, batch, heads, sequence, source, seconds in zip(
        *columns, table.source_index.tolist(), table.seconds.tolist(), strict=True
    ):
        yield (head_dim + value_dim, bool(causal)), (batch * heads, sequence), (is_burst[source], seconds)


def _core_rows(key: CoreKey, fastest: Mapping[CoreShape, CoreTime]) -> CoreRows:
    dims, causal = key
    return CoreRows(
        dims=dims,
        causal=causal,
        shapes=np.array(list(fastest), dtype=np.int64).reshape(-1, 2),
        seconds=np.array([seconds for _, seconds in fastest.values()], dtype=np.float64),
    )
