"""Machines of one kind compared by their profiles: which takes longer than the others for the same work."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.profile import Profile
from planner.units import Seconds

SLOW: Final = 1.05
"""Time over that of the middle machine from which one counts as slow."""
LEAST_ROWS: Final = 5
"""Of fewer rows of a kind one disturbance names a machine."""

Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One profile beside the others, for one kind of measurement that all have.

    ``relative_time`` is the median over the shared rows of its time over that of the middle profile;
    ``spread`` half the range of the middle half of those ratios: what differs from row to row.
    """

    name: str
    kind: str
    rows: int
    relative_time: float
    spread: float

    @property
    def is_slow(self) -> bool:
        """Whether it is slower than the middle one, beyond what rows differ by."""
        return self.rows >= LEAST_ROWS and self.relative_time >= SLOW + self.spread


def compare_profiles(profiles: Mapping[str, Profile]) -> tuple[Compared, ...]:
    """Return every profile beside the others, kind by kind, over the rows that all of them have.

    They are known by the names given here: those of machines of one kind may be equal.
    """
    times = [dict(_times(profile)) for profile in profiles.values()]
    shared = [key for key in times[0] if all(key in of_profile for of_profile in times)]
    kinds = sorted({str(key[0]) for key in shared})
    return tuple(
        _compared(name, kind, [_relative(of_profile, times, key) for key in shared if key[0] == kind])
        for kind in kinds
        for name, of_profile in zip(profiles, times, strict=True)
    )


def _times(profile: Profile) -> Iterator[tuple[Key, Seconds]]:
    """Yield what was measured and how long it took; of several rows for the same the last counts."""
    for table in profile.kernels:
        kind = f"{table.operator} {table.dtype} {table.phase}"
        for shape, seconds in zip(table.shapes.tolist(), table.seconds.tolist(), strict=True):
            yield (kind, table.dims, *shape), seconds
    for row in profile.collectives:
        ranks = (row.world_size, row.ranks_per_node)
        yield (f"{row.operation}, {ranks[0]} ranks", ranks, row.payload_bytes), row.seconds
    for transfer in profile.transfers:
        yield (transfer.operation, transfer.payload_bytes), 1 / transfer.bytes_per_second


def _relative(own: Mapping[Key, Seconds], times: Sequence[Mapping[Key, Seconds]], key: Key) -> float:
    return own[key] / statistics.median_low([of_profile[key] for of_profile in times])


def _compared(name: str, kind: str, ratios: Sequence[float]) -> Compared:
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    return Compared(
        name=name,
        kind=kind,
        rows=len(ratios),
        relative_time=statistics.median(ratios),
        spread=(quarters[2] - quarters[0]) / 2,
    )
