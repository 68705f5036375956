"""The lists of a profile document as rows of their tables, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Double, Table, insert, select
from sqlalchemy.orm import Session

from api.stores.documents import Document
from api.tables import Base, CollectiveMeasurementRow, KernelMeasurementRow, TransferMeasurementRow

_KEYS_OF_THE_ROW = frozenset({"id", "profile_run_id"})


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementList:
    """One list of a profile document, ``kernels`` for one, and the table that keeps it."""

    name: str
    table: Table
    keys: tuple[str, ...]
    required: frozenset[str]
    numbers: frozenset[str]
    """Keys whose values are numbers with a fraction, so that 1 and 1.0 are the same measurement."""

    def canonical(self, document: Mapping[str, Any]) -> list[Document]:
        """Return the measurements with every key in its place; ValueError names a missing or unknown key."""
        return [
            self._canonical_row(row, position=position)
            for position, row in enumerate(document.get(self.name, ()))
        ]

    def insert(self, session: Session, rows: Sequence[Document], *, profile_run_id: int) -> None:
        """Add canonical measurements to a profile."""
        if rows:
            session.execute(insert(self.table), [row | {"profile_run_id": profile_run_id} for row in rows])

    def read(self, session: Session, *, profile_run_id: int) -> list[Document]:
        """Return the measurements of a profile in the order in which they were added."""
        columns = self.table.columns
        found = session.execute(
            select(*(columns[key] for key in self.keys))
            .where(columns["profile_run_id"] == profile_run_id)
            .order_by(columns["id"])
        )
        return [dict(zip(self.keys, row, strict=True)) for row in found]

    def _canonical_row(self, row: Mapping[str, Any], *, position: int) -> Document:
        missing, unknown = self.required - row.keys(), row.keys() - set(self.keys)
        if missing or unknown:
            raise ValueError(
                f"{self.name}[{position}]: missing {sorted(missing)}, not known {sorted(unknown)}"
            )
        return {key: self._canonical_value(key, row.get(key)) for key in self.keys}

    def _canonical_value(self, key: str, value: object) -> object:
        return float(value) if key in self.numbers and isinstance(value, int) else value


def _measurement_list(name: str, row: type[Base]) -> MeasurementList:
    table = Base.metadata.tables[row.__tablename__]
    columns = [column for column in table.columns if column.name not in _KEYS_OF_THE_ROW]
    return MeasurementList(
        name=name,
        table=table,
        keys=tuple(column.name for column in columns),
        required=frozenset(column.name for column in columns if not column.nullable),
        numbers=frozenset(column.name for column in columns if isinstance(column.type, Double)),
    )


MEASUREMENT_LISTS = (
    _measurement_list("kernels", KernelMeasurementRow),
    _measurement_list("collectives", CollectiveMeasurementRow),
    _measurement_list("transfers", TransferMeasurementRow),
)
