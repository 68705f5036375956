"""One piece of work: a stored request that is answered, its result stored in turn."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import UUID

from api.jobs.answering import OnProgress, answer, read_request
from api.jobs.limits import time_limited
from api.profile_library import ProfileLibrary
from api.schemas.problem import ProblemDocument
from api.schemas.result import ResultDocument, State
from api.stores.plans import PlanKind, PlanState, PlanStore
from api.version import VERSION
from planner.errors import InvalidRequest
from planner.units import Seconds

log = logging.getLogger(__name__)

UNEXPECTED = "the planner failed on this request; the log says why, under the id of the request"
TOO_LONG = "this request took much longer than its time limit and was given up"
TOO_LARGE = "this request needs more memory than a worker has"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A request that waits in the store under its id."""

    id: UUID
    kind: PlanKind
    request: Mapping[str, Any]
    """Normalised."""


def perform(
    work: Work,
    *,
    plans: PlanStore,
    library: ProfileLibrary,
    on_progress: OnProgress | None = None,
    limit_seconds: Seconds | None = None,
) -> None:
    """Answer a request and store the result, or the problem that prevents one."""
    plans.update(work.id, state=PlanState.RUNNING)
    try:
        with time_limited(limit_seconds):
            result = answer(
                read_request(work.request), result_id=work.id, library=library, on_progress=on_progress
            )
    except Exception as error:  # noqa: BLE001 - told apart and logged there
        store_failure(work, _problem_of(error, work), plans=plans)
    else:
        plans.update(
            work.id, state=PlanState.DONE, status=result.status, result=result.model_dump(mode="json")
        )


def _problem_of(error: Exception, work: Work) -> ProblemDocument:
    """Return why a request has no result; what nobody foresaw goes into the log."""
    match error:
        case InvalidRequest():
            return ProblemDocument.of_invalid_request(error)
        case TimeoutError():
            return ProblemDocument.of_status(HTTPStatus.GATEWAY_TIMEOUT, TOO_LONG)
        case MemoryError():
            return ProblemDocument.of_status(HTTPStatus.INSUFFICIENT_STORAGE, TOO_LARGE)
    log.error("request %s could not be answered", work.id, exc_info=error)
    return ProblemDocument.of_status(HTTPStatus.INTERNAL_SERVER_ERROR, UNEXPECTED)


def store_failure(work: Work, problem: ProblemDocument, *, plans: PlanStore) -> None:
    """Store why a request has no result."""
    result = unanswered(work, state=State.FAILED).model_copy(update={"problem": problem})
    plans.update(work.id, state=PlanState.FAILED, result=result.model_dump(mode="json"))


def store_cancellation(work: Work, *, plans: PlanStore) -> None:
    """Store that nobody works on a request any more."""
    result = unanswered(work, state=State.CANCELLED)
    plans.update(work.id, state=PlanState.CANCELLED, result=result.model_dump(mode="json"))


def unanswered(work: Work, *, state: State) -> ResultDocument:
    """Return the document of a request that has no result, or none yet."""
    return ResultDocument(id=work.id, version=VERSION, request=dict(work.request), state=state)
