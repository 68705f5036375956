"""The compact form in which profiles come with the package: columns instead of rows."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np

from planner.measurements import CollectiveRow, KernelTable, Source, TransferRow

FORMAT: Final = "meshplan-profile-columns/1"
NANOSECOND: Final = 1e-9
"""Times are kept as rounded counts of this: no source gives more digits."""


def tables_from_columns(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of a compact document, as keyword arguments of ``Profile``."""
    sources = tuple(Source(source=source, source_ref=ref) for source, ref in document["sources"])
    return {
        "kernels": tuple(_table(columns) for columns in document["kernels"]),
        "collectives": tuple(_collectives(document["collectives"], sources)),
        "transfers": tuple(_transfers(document["transfers"], sources)),
        "sources": sources,
    }


def columns_from_rows(document: Mapping[str, Any], *, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compact form of a profile document whose rows were read into ``tables``."""
    sources: dict[Source, int] = {source: number for number, source in enumerate(tables["sources"])}
    for row in (*tables["collectives"], *tables["transfers"]):
        sources.setdefault(row.source, len(sources))
    return {
        "format": FORMAT,
        **{key: document[key] for key in ("name", "device", "software", "facts")},
        "sources": [[source.source, source.source_ref] for source in sources],
        "kernels": [_table_columns(table) for table in tables["kernels"]],
        "collectives": _row_columns(CollectiveRow, tables["collectives"], sources),
        "transfers": _row_columns(TransferRow, tables["transfers"], sources),
    }


def _table(columns: Mapping[str, Any]) -> KernelTable:
    dims = tuple(columns["dims"])
    rows = len(columns["nanoseconds"])
    spread = columns["spread_nanoseconds"]
    return KernelTable(
        operator=columns["operator"],
        dtype=columns["dtype"],
        phase=columns["phase"],
        dims=dims,
        shapes=np.array(columns["shapes"], dtype=np.int64).reshape(len(dims), rows).T.copy(),
        seconds=np.array(columns["nanoseconds"], dtype=np.float64) * NANOSECOND,
        spread_seconds=np.full(rows, np.nan)
        if spread is None
        else np.array(spread, dtype=np.float64) * NANOSECOND,
        source_index=np.array(columns["source"], dtype=np.int64),
    )


def _table_columns(table: KernelTable) -> dict[str, Any]:
    return {
        "operator": table.operator,
        "dtype": table.dtype,
        "phase": table.phase,
        "dims": list(table.dims),
        "shapes": table.shapes.T.tolist(),
        "nanoseconds": np.rint(table.seconds / NANOSECOND).astype(np.int64).tolist(),
        "spread_nanoseconds": None
        if np.isnan(table.spread_seconds).all()
        else np.rint(table.spread_seconds / NANOSECOND).tolist(),
        "source": table.source_index.tolist(),
    }


def _row_columns(
    kind: type[CollectiveRow] | type[TransferRow],
    rows: tuple[CollectiveRow, ...] | tuple[TransferRow, ...],
    sources: Mapping[Source, int],
) -> dict[str, list[Any]]:
    names = [field.name for field in fields(kind) if field.name != "source"]
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    return {**columns, "source": [sources[row.source] for row in rows]}


def _collectives(columns: Mapping[str, list[Any]], sources: tuple[Source, ...]) -> list[CollectiveRow]:
    return [CollectiveRow(**row) for row in _unfold(columns, sources)]


def _transfers(columns: Mapping[str, list[Any]], sources: tuple[Source, ...]) -> list[TransferRow]:
    return [TransferRow(**row) for row in _unfold(columns, sources)]


def _unfold(columns: Mapping[str, list[Any]], sources: tuple[Source, ...]) -> list[dict[str, Any]]:
    names = list(columns)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{**row, "source": sources[row["source"]]} for row in rows]
