"""Plans that were run: what each trial measured, beside what had been predicted."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import select

from api.database import SessionFactory, writing
from api.tables import TrialRow


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One trial: of which result's plan, on which device, and its report."""

    id: UUID
    result_id: UUID | None
    created_at: datetime
    device: str
    report: Mapping[str, Any]


class TrialStore(Protocol):
    """Where trials are kept."""

    def add(self, report: Mapping[str, Any], *, result_id: UUID | None, device: str) -> UUID:
        """Keep the report of a trial; return its id."""
        ...

    def get(self, trial_id: UUID) -> TrialRecord | None:
        """Return the trial, or None where none has this id."""
        ...

    def recent(self, *, limit: int = 50) -> list[TrialRecord]:
        """Return the newest trials, newest first."""
        ...


class DatabaseTrialStore:
    """The trial store on SQLite or PostgreSQL."""

    def __init__(self, sessions: SessionFactory) -> None:
        self._sessions = sessions

    def add(self, report: Mapping[str, Any], *, result_id: UUID | None, device: str) -> UUID:
        """See `TrialStore.add`."""
        with writing(self._sessions) as session:
            row = TrialRow(report=dict(report), result_id=result_id, device=device)
            session.add(row)
            session.flush()
            return row.id

    def get(self, trial_id: UUID) -> TrialRecord | None:
        """See `TrialStore.get`."""
        with self._sessions() as session:
            row = session.get(TrialRow, trial_id)
            return None if row is None else _record(row)

    def recent(self, *, limit: int = 50) -> list[TrialRecord]:
        """See `TrialStore.recent`."""
        newest = select(TrialRow).order_by(TrialRow.created_at.desc(), TrialRow.id).limit(limit)
        with self._sessions() as session:
            return [_record(row) for row in session.scalars(newest)]


def _record(row: TrialRow) -> TrialRecord:
    return TrialRecord(
        id=row.id,
        result_id=row.result_id,
        created_at=row.created_at,
        device=row.device,
        report=row.report,
    )
