"""The name of a profile's content: equal content has an equal hash, whatever the order of its rows."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.measurements import KernelTable, Source


def content_digest(
    head: Sequence[object],
    *,
    kernels: Sequence[KernelTable],
    sources: Sequence[Source],
    rows: Sequence[dict[str, Any]],
) -> str:
    """Return the SHA-256 of a head, sorted kernel tables with sorted rows, and other rows, sorted.

    Sources count by what they say, not by their numbers.
    """
    canonical = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    names = [f"{source.source or ''}\n{source.source_ref or ''}" for source in sources]
    used = sorted({names[number] for table in kernels for number in set(table.source_index.tolist())})
    ranks = {name: rank for rank, name in enumerate(used)}
    rank_of = np.array([ranks.get(name, 0) for name in names], dtype=np.int64)
    for table in sorted(kernels, key=lambda table: (table.operator, table.dtype, table.phase, table.dims)):
        canonical.update(json.dumps([table.operator, table.dtype, table.phase, *table.dims]).encode())
        canonical.update(_canonical_bytes(table, rank_of))
    canonical.update(json.dumps([used, sorted(map(json.dumps, rows))]).encode())
    return canonical.hexdigest()


def _canonical_bytes(table: KernelTable, rank_of: NDArray[np.int64]) -> bytes:
    ranks = rank_of[table.source_index]
    order = np.lexsort((table.spread_seconds, table.seconds, ranks, *table.shapes.T[::-1]))
    counts = np.column_stack([table.shapes[order], ranks[order]]).astype("<i8")
    times = np.column_stack([table.seconds[order], table.spread_seconds[order]]).astype("<f8")
    return counts.tobytes() + times.tobytes()
