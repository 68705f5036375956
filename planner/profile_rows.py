"""Rows of a profile as its document says them."""

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

from planner.measurements import CollectiveRow, KernelTable, Source, TransferRow


def kernel_documents(table: KernelTable, sources: Sequence[Source]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table; ``sources`` is what its source numbers point into."""
    columns = zip(
        table.shape_documents(),
        table.seconds.tolist(),
        table.spread_seconds.tolist(),
        table.source_index.tolist(),
        strict=True,
    )
    for shape, seconds, spread, number in columns:
        yield {
            "operator": table.operator,
            "dtype": table.dtype,
            "phase": table.phase,
            "shape": shape,
            "seconds": seconds,
            "spread_seconds": None if isnan(spread) else spread,
            "source": sources[number].source,
            "source_ref": sources[number].source_ref,
        }


def collective_document(row: CollectiveRow) -> dict[str, Any]:
    """Return a collective row."""
    return {
        "operation": row.operation,
        "world_size": row.world_size,
        "ranks_per_node": row.ranks_per_node,
        "payload_bytes": int(row.payload_bytes),
        "seconds": row.seconds,
        "spread_seconds": row.spread_seconds,
        "dtype": row.dtype,
        "algorithm": row.algorithm,
        "intra_link": row.intra_link,
        "inter_link": row.inter_link,
        "source": row.source.source,
        "source_ref": row.source.source_ref,
    }


def transfer_document(row: TransferRow) -> dict[str, Any]:
    """Return a transfer row."""
    return {
        "operation": row.operation,
        "payload_bytes": None if row.payload_bytes is None else int(row.payload_bytes),
        "bytes_per_second": row.bytes_per_second,
        "source": row.source.source,
        "source_ref": row.source.source_ref,
    }
