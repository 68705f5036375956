"""Plans and evaluations in the database: what was asked, how far it is, and the result."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID, uuid4

from sqlalchemy import select, update
from sqlalchemy.orm import defer

from api.database import SessionFactory, writing
from api.stores.documents import Document, document_digest
from api.tables import PlanRow


class PlanKind(StrEnum):
    """Which verb a request came with."""

    PLAN = "plan"
    EVALUATION = "evaluation"


class PlanState(StrEnum):
    """How far the work on a request is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRecord:
    """A request and what became of it."""

    id: UUID
    kind: PlanKind
    created_at: datetime
    state: PlanState
    status: str | None
    """How it ended, in the words of the result: optimal, infeasible, fits, …; None before."""
    request: Document
    request_digest: str
    """Equal for equal requests."""
    result: Document | None


class PlanStore(Protocol):
    """Where requests and their results are kept."""

    def add(
        self,
        request: Mapping[str, Any],
        *,
        kind: PlanKind,
        state: PlanState = PlanState.QUEUED,
        status: str | None = None,
        result: Mapping[str, Any] | None = None,
        plan_id: UUID | None = None,
    ) -> UUID:
        """Keep a request, with its result where there is one; return its id, a new one unless given."""
        ...

    def get(self, plan_id: UUID) -> PlanRecord | None:
        """Return the record, or None where no request has this id."""
        ...

    def update(
        self,
        plan_id: UUID,
        *,
        state: PlanState,
        status: str | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace state, status and result; KeyError where no request has this id."""
        ...

    def recent(
        self, *, kind: PlanKind | None = None, state: PlanState | None = None, limit: int = 50
    ) -> list[PlanRecord]:
        """Return the newest records, newest first; their results, which may be long, are left out."""
        ...


class DatabasePlanStore:
    """The plan store on SQLite or PostgreSQL."""

    def __init__(self, sessions: SessionFactory) -> None:
        self._sessions = sessions

    def add(
        self,
        request: Mapping[str, Any],
        *,
        kind: PlanKind,
        state: PlanState = PlanState.QUEUED,
        status: str | None = None,
        result: Mapping[str, Any] | None = None,
        plan_id: UUID | None = None,
    ) -> UUID:
        """See `PlanStore.add`."""
        row = PlanRow(
            id=plan_id or uuid4(),
            kind=kind,
            state=state,
            status=status,
            request=dict(request),
            result=_document(result),
            request_digest=document_digest(request),
        )
        with writing(self._sessions) as session:
            session.add(row)
        return row.id

    def get(self, plan_id: UUID) -> PlanRecord | None:
        """See `PlanStore.get`."""
        with self._sessions() as session:
            row = session.get(PlanRow, plan_id)
            return None if row is None else _record(row, result=row.result)

    def update(
        self,
        plan_id: UUID,
        *,
        state: PlanState,
        status: str | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """See `PlanStore.update`."""
        changed = (
            update(PlanRow)
            .where(PlanRow.id == plan_id)
            .values(state=state, status=status, result=_document(result))
            .returning(PlanRow.id)
        )
        with writing(self._sessions) as session:
            if session.scalar(changed) is None:
                raise KeyError(f"no plan {plan_id}")

    def recent(
        self, *, kind: PlanKind | None = None, state: PlanState | None = None, limit: int = 50
    ) -> list[PlanRecord]:
        """See `PlanStore.recent`."""
        newest = (
            select(PlanRow).options(defer(PlanRow.result)).order_by(PlanRow.created_at.desc(), PlanRow.id)
        )
        if kind is not None:
            newest = newest.where(PlanRow.kind == kind)
        if state is not None:
            newest = newest.where(PlanRow.state == state)
        with self._sessions() as session:
            return [_record(row, result=None) for row in session.scalars(newest.limit(limit))]


def _document(given: Mapping[str, Any] | None) -> Document | None:
    return None if given is None else dict(given)


def _record(row: PlanRow, *, result: Document | None) -> PlanRecord:
    return PlanRecord(
        id=row.id,
        kind=PlanKind(row.kind),
        created_at=row.created_at,
        state=PlanState(row.state),
        status=row.status,
        request=row.request,
        request_digest=row.request_digest,
        result=result,
    )
