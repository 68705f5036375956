"""A profile document read row by row: good rows become tables, bad ones are refused with reasons."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from planner.measurements import (
    DTYPES,
    OPERATIONS,
    PHASES,
    REQUIRED_DIMS,
    CollectiveRow,
    KernelTable,
    Source,
    TransferRow,
)
from planner.names import nearest_names

Row = TypeVar("Row")
TableKey = tuple[str, str, str, tuple[str, ...]]
"""Operator, number format, phase and shape keys of a table."""
KernelValues = tuple[list[int], float, float, int]
"""Sizes, seconds, spread (NaN where unknown) and source number of one row."""

SOURCE_KEYS: Final = frozenset({"source", "source_ref"})
KERNEL_KEYS: Final = (
    frozenset({"operator", "dtype", "phase", "shape", "seconds", "spread_seconds"}) | SOURCE_KEYS
)
COLLECTIVE_KEYS: Final = (
    frozenset({"operation", "world_size", "ranks_per_node", "payload_bytes", "seconds", "spread_seconds"})
    | frozenset({"dtype", "algorithm", "intra_link", "inter_link"})
    | SOURCE_KEYS
)
TRANSFER_KEYS: Final = frozenset({"operation", "payload_bytes", "bytes_per_second"}) | SOURCE_KEYS
"""What rows may say: a misspelt key would lose its value in silence."""

MAX_NAME_LENGTH: Final = 200
MAX_COUNT: Final = 2**53
"""Integers beyond this are not exact in JSON readers, and no shape is that large."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedRow:
    """A row that was not taken: its JSON pointer in the document, and why."""

    pointer: str
    reason: str


class _BadRow(ValueError):  # noqa: N818 - reads as what it is
    """Why a row is refused; caught where rows are collected."""


@dataclass(kw_only=True, slots=True)
class SourceIndex:
    """Numbers for sources, in order of first appearance."""

    numbers: dict[tuple[str | None, str | None], int] = field(default_factory=dict)

    def number(self, row: Mapping[str, object]) -> int:
        """Return the number of the row's source."""
        source, ref = row.get("source"), row.get("source_ref")
        if (isinstance(source, str) or source is None) and (isinstance(ref, str) or ref is None):
            known = self.numbers.get((source, ref))
            if known is not None:
                return known
        key = (_text_or_none(row, "source"), _text_or_none(row, "source_ref"))
        return self.numbers.setdefault(key, len(self.numbers))

    def sources(self) -> tuple[Source, ...]:
        """Return all sources by number."""
        return tuple(Source(source=source, source_ref=ref) for source, ref in self.numbers)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRows:
    """Everything of a document that could be read, and everything that could not."""

    kernels: tuple[KernelTable, ...]
    collectives: tuple[CollectiveRow, ...]
    transfers: tuple[TransferRow, ...]
    sources: tuple[Source, ...]
    refused: tuple[RefusedRow, ...]


def read_rows(document: Mapping[str, object]) -> ReadRows:
    """Return the rows of a profile document; rows that say nonsense are refused one by one."""
    refused: list[RefusedRow] = []
    index = SourceIndex()
    kernels = _read_kernels(_list(document, "kernels", refused), index, refused)
    collectives = _read_each(_list(document, "collectives", refused), "collectives", _collective, refused)
    transfers = _read_each(_list(document, "transfers", refused), "transfers", _transfer, refused)
    return ReadRows(
        kernels=kernels,
        collectives=tuple(collectives),
        transfers=tuple(transfers),
        sources=index.sources(),
        refused=tuple(refused),
    )


def _list(document: Mapping[str, object], key: str, refused: list[RefusedRow]) -> Sequence[object]:
    value = document.get(key, [])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    refused.append(RefusedRow(pointer=f"/{key}", reason=f"{key} must be a list of rows"))
    return []


def _read_each(
    rows: Sequence[object],
    key: str,
    read: Callable[[Mapping[str, object]], Row],
    refused: list[RefusedRow],
) -> list[Row]:
    taken = []
    for number, row in enumerate(rows):
        try:
            taken.append(read(_mapping(row)))
        except _BadRow as error:
            refused.append(RefusedRow(pointer=f"/{key}/{number}", reason=str(error)))
    return taken


def _read_kernels(
    rows: Sequence[object], index: SourceIndex, refused: list[RefusedRow]
) -> tuple[KernelTable, ...]:
    heads: dict[tuple[object, ...], TableKey] = {}
    columns: dict[TableKey, list[KernelValues]] = defaultdict(list)
    for number, row in enumerate(rows):
        try:
            known = _with_keys(_mapping(row), KERNEL_KEYS)
            key = _table_key(known, heads)
            columns[key].append(_kernel_values(known, key, index))
        except _BadRow as error:
            refused.append(RefusedRow(pointer=f"/kernels/{number}", reason=str(error)))
    return tuple(_table(key, columns[key]) for key in sorted(columns) if columns[key])


def _table_key(row: Mapping[str, object], heads: dict[tuple[object, ...], TableKey]) -> TableKey:
    """Return the table of a row; ``heads`` keeps the answers, as most rows begin alike."""
    shape = _mapping(row.get("shape"), "shape")
    head = (row.get("operator"), row.get("dtype"), row.get("phase"), *shape)
    try:
        known = heads.get(head)
    except TypeError:  # a list or an object where a name belongs: the checks below say so
        known = None
    if known is None:
        known = _checked_key(row, shape)
        heads[head] = known
    return known


def _checked_key(row: Mapping[str, object], shape: Mapping[str, object]) -> TableKey:
    operator = _text(row, "operator")
    dtype = _one_of(row, "dtype", DTYPES)
    phase = _one_of(row, "phase", PHASES)
    dims = REQUIRED_DIMS.get(operator)
    if dims is not None:
        _with_keys(shape, dims, place=f" in the shape of a {operator}")
        if missing := dims - shape.keys():
            raise _BadRow(f"the shape of a {operator} needs {', '.join(sorted(missing))}")
    return operator, dtype, phase, tuple(sorted(shape))


def _kernel_values(row: Mapping[str, object], key: TableKey, index: SourceIndex) -> KernelValues:
    shape = _mapping(row["shape"])
    sizes = [_count(shape, dim, least=0) for dim in key[-1]]
    return sizes, _positive(row, "seconds"), _spread(row), index.number(row)


def _table(key: TableKey, rows: Sequence[KernelValues]) -> KernelTable:
    operator, dtype, phase, dims = key
    sizes, seconds, spreads, sources = zip(*rows, strict=True)
    return KernelTable(
        operator=operator,
        dtype=dtype,
        phase=phase,
        dims=dims,
        shapes=np.array(sizes, dtype=np.int64).reshape(len(rows), len(dims)),
        seconds=np.array(seconds, dtype=np.float64),
        spread_seconds=np.array(spreads, dtype=np.float64),
        source_index=np.array(sources, dtype=np.int64),
    )


def _collective(row: Mapping[str, object]) -> CollectiveRow:
    _with_keys(row, COLLECTIVE_KEYS)
    world_size = _count(row, "world_size", least=1)
    ranks_per_node = _count(row, "ranks_per_node", least=1)
    if ranks_per_node > world_size:
        raise _BadRow(f"ranks_per_node ({ranks_per_node}) is above world_size ({world_size})")
    spread = _spread(row)
    return CollectiveRow(
        operation=_one_of(row, "operation", OPERATIONS),
        world_size=world_size,
        ranks_per_node=ranks_per_node,
        payload_bytes=_positive(row, "payload_bytes"),
        seconds=_positive(row, "seconds"),
        spread_seconds=None if math.isnan(spread) else spread,
        dtype=_text_or_none(row, "dtype"),
        algorithm=_text_or_none(row, "algorithm"),
        intra_link=_text_or_none(row, "intra_link"),
        inter_link=_text_or_none(row, "inter_link"),
        source=_source(row),
    )


def _transfer(row: Mapping[str, object]) -> TransferRow:
    _with_keys(row, TRANSFER_KEYS)
    payload = None if row.get("payload_bytes") is None else _positive(row, "payload_bytes")
    return TransferRow(
        operation=_text(row, "operation"),
        payload_bytes=payload,
        bytes_per_second=_positive(row, "bytes_per_second"),
        source=_source(row),
    )


def _source(row: Mapping[str, object]) -> Source:
    return Source(source=_text_or_none(row, "source"), source_ref=_text_or_none(row, "source_ref"))


def _mapping(value: object, name: str = "a row") -> Mapping[str, object]:
    # Asking a plain dictionary first halves the time of a large document.
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101
        return value
    raise _BadRow(f"{name} must be an object, not {type(value).__name__}")


def _with_keys(row: Mapping[str, object], keys: frozenset[str], *, place: str = "") -> Mapping[str, object]:
    """Return a row that has no other keys than these; else refuse the first other one."""
    if row.keys() <= keys:
        return row
    unknown = min(str(key) for key in row.keys() - keys)
    nearest = nearest_names(unknown, keys, limit=1)[0]
    raise _BadRow(f"unknown key {unknown[:MAX_NAME_LENGTH]!r}{place}; did you mean {nearest!r}?")


def _text(row: Mapping[str, object], key: str) -> str:
    value = row.get(key)
    if isinstance(value, str) and 0 < len(value) <= MAX_NAME_LENGTH:
        return value
    raise _BadRow(f"{key} must be a text of 1 to {MAX_NAME_LENGTH} characters")


def _text_or_none(row: Mapping[str, object], key: str) -> str | None:
    return _text(row, key) if row.get(key) else None


def _one_of(row: Mapping[str, object], key: str, choices: frozenset[str]) -> str:
    value = row.get(key)
    if isinstance(value, str) and value in choices:
        return value
    raise _BadRow(f"{key} is {value!r}, but must be one of {', '.join(sorted(choices))}")


def _count(row: Mapping[str, object], key: str, *, least: int) -> int:
    value = row.get(key)
    if isinstance(value, int) and least <= value <= MAX_COUNT:
        return int(value)
    raise _BadRow(f"{key} is {value!r}, but must be an integer of at least {least}")


def _positive(row: Mapping[str, object], key: str) -> float:
    value = row.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    raise _BadRow(f"{key} is {value!r}, but must be a finite number above zero")


def _spread(row: Mapping[str, object]) -> float:
    value = row.get("spread_seconds")
    if value is None:
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise _BadRow(f"spread_seconds is {value!r}, but must be null or a finite number of at least zero")
