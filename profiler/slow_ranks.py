"""Machines of one kind compared: which process, on which node, takes longer than the others for the same."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from profiler.outcomes import Result, rank_medians
from profiler.shapes import KernelShape
from profiler.timing import Timing

SLOW = 1.05
"""Time over that of the middle process from which one counts as slow, over most of its kernels."""
LEAST_KERNELS = 5
"""Of fewer kernels one disturbance names a process."""


def compared_ranks(results: Iterable[Result], *, places: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each process with its time over the middle one's, the median over all kernels.

    ``places`` says by rank which node and device a process has. Nothing where there is only one
    process, or too few kernels to tell.
    """
    ratios = [
        _over_the_middle(medians)
        for result in results
        if isinstance(result.wanted, KernelShape)
        and isinstance(result.outcome, Timing)
        and len(medians := rank_medians(result.outcome)) > 1
    ]
    if len(ratios) < LEAST_KERNELS:
        return []
    relative = [statistics.median(of_rank) for of_rank in zip(*ratios, strict=True)]
    return [
        {
            "rank": rank,
            **(places[rank] if rank < len(places) else {}),
            "relative_time": round(ratio, 4),
            "is_slow": ratio >= SLOW,
        }
        for rank, ratio in enumerate(relative)
    ]


def _over_the_middle(medians: Sequence[float]) -> list[float]:
    middle = statistics.median_low(medians)
    return [median / middle for median in medians]
