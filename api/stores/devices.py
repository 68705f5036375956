"""Kinds of devices in the database, by the names that requests say."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from sqlalchemy import select

from api.database import SessionFactory, writing
from api.stores.documents import Document
from api.tables import DeviceRow

COLUMNS = ("name", "vendor", "architecture", "memory_bytes")
"""What of a document has a column of its own; the rest stays together."""


class DeviceStore(Protocol):
    """Where devices are kept: documents with ``name``, ``memory_bytes`` and whatever else is known."""

    def put(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Keep the devices; each replaces the one of its name."""
        ...

    def get(self, name: str) -> Document | None:
        """Return the device of exactly this name, or None."""
        ...

    def list_all(self) -> list[Document]:
        """Return all devices, by name."""
        ...


class DatabaseDeviceStore:
    """The device store on SQLite or PostgreSQL."""

    def __init__(self, sessions: SessionFactory) -> None:
        self._sessions = sessions

    def put(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """See `DeviceStore.put`."""
        with writing(self._sessions) as session:
            for document in documents:
                session.merge(_row(document))

    def get(self, name: str) -> Document | None:
        """See `DeviceStore.get`."""
        with self._sessions() as session:
            row = session.get(DeviceRow, name)
            return None if row is None else _document(row)

    def list_all(self) -> list[Document]:
        """See `DeviceStore.list_all`."""
        with self._sessions() as session:
            rows = session.scalars(select(DeviceRow))
            # Sorted here: the order of names in a database depends on its language.
            return sorted(map(_document, rows), key=lambda document: str(document["name"]))


def _row(document: Mapping[str, Any]) -> DeviceRow:
    return DeviceRow(
        **{column: document.get(column) for column in COLUMNS},
        details={key: value for key, value in document.items() if key not in COLUMNS},
    )


def _document(row: DeviceRow) -> Document:
    return {column: getattr(row, column) for column in COLUMNS} | row.details
