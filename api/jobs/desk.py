"""The front desk: takes requests in, says how far they are, and keeps what goes wrong with a worker."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID, uuid4

from api.jobs.progress import ProgressFiles
from api.jobs.runner import Runner
from api.jobs.work import Work, store_cancellation, store_failure, unanswered
from api.schemas.problem import ProblemDocument
from api.schemas.result import State
from api.stores.plans import PlanKind, PlanRecord, PlanState, PlanStore

log = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 2
"""A request that waited while another one took the worker down is tried again; not for ever."""
MAX_ABANDONED: Final = 10_000
LOST = "the worker process died on this request; it may have run out of memory"


class QueueFullError(Exception):
    """More requests wait than the service takes."""

    def __init__(self, *, waiting: int) -> None:
        super().__init__(f"{waiting} requests wait already; try again later")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """A request that was taken in, and what is done when its result is stored."""

    id: UUID
    done: Future[None]


class FrontDesk:
    """Takes requests to a runner and keeps the store true whatever becomes of them."""

    def __init__(
        self, *, plans: PlanStore, runner: Runner, progress: ProgressFiles, max_waiting: int
    ) -> None:
        """Take what is stored, where work runs, and how much may wait."""
        self._plans = plans
        self._runner = runner
        self._progress = progress
        self._max_waiting = max_waiting
        self._open: set[UUID] = set()
        self._is_closing = False

    def take(self, request: Mapping[str, Any], *, kind: PlanKind) -> Ticket:
        """Store a normalised request and begin with it, or queue it; QueueFullError where too many wait."""
        if len(self._open) >= self._max_waiting:
            raise QueueFullError(waiting=len(self._open))
        work = Work(id=uuid4(), kind=kind, request=request)
        self._plans.add(request, kind=kind, plan_id=work.id)
        self._open.add(work.id)
        ticket = Ticket(id=work.id, done=Future())
        self._run(work, ticket, attempt=1)
        return ticket

    def document(self, record: PlanRecord) -> dict[str, Any]:
        """Return the result document of a stored request, with its progress as long as it has no result."""
        if record.result is not None:
            return record.result
        work = Work(id=record.id, kind=record.kind, request=record.request)
        waiting = unanswered(work, state=State(record.state))
        progress = self._progress.read(record.id)
        return waiting.model_copy(update={"progress": progress}).model_dump(mode="json")

    def close(self) -> None:
        """Stop all work; what has no result yet is cancelled."""
        self._is_closing = True
        self._runner.close()

    def cancel_abandoned(self) -> None:
        """Cancel what an earlier service left without a result; for a database that one service uses."""
        for state in (PlanState.QUEUED, PlanState.RUNNING):
            for record in self._plans.recent(state=state, limit=MAX_ABANDONED):
                work = Work(id=record.id, kind=record.kind, request=record.request)
                store_cancellation(work, plans=self._plans)

    def _run(self, work: Work, ticket: Ticket, *, attempt: int) -> None:
        try:
            running = self._runner.submit(work)
        except BaseException:
            self._open.discard(work.id)
            raise
        running.add_done_callback(lambda ended: self._end(ended, work, ticket, attempt=attempt))

    def _end(self, ended: Future[None], work: Work, ticket: Ticket, *, attempt: int) -> None:
        """Close a request, or try again where the worker died before it began with it."""
        error = None if ended.cancelled() else ended.exception()
        if isinstance(error, BrokenProcessPool) and self._may_retry(work, attempt=attempt):
            self._run(work, ticket, attempt=attempt + 1)
            return
        try:
            if ended.cancelled() or error is not None:
                self._store_end(work, error)
            self._progress.forget(work.id)
        finally:
            self._open.discard(work.id)
            ticket.done.set_result(None)

    def _may_retry(self, work: Work, *, attempt: int) -> bool:
        record = self._plans.get(work.id)
        never_begun = record is not None and record.state is PlanState.QUEUED
        return never_begun and attempt < MAX_ATTEMPTS and not self._is_closing

    def _store_end(self, work: Work, error: BaseException | None) -> None:
        """Store why a request has no result."""
        if self._is_closing:
            store_cancellation(work, plans=self._plans)
            return
        log.error("request %s was lost", work.id, exc_info=error)
        problem = ProblemDocument.of_status(HTTPStatus.INTERNAL_SERVER_ERROR, LOST)
        store_failure(work, problem, plans=self._plans)
