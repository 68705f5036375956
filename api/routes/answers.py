"""What plans and evaluations have in common: taken in, waited for, read again, drawn."""

import asyncio
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from uuid import UUID

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.dependencies import Service
from api.jobs.answering import check_time_limit, read_request, resolve, timeline
from api.problems import problem_response
from api.schemas.problem import ProblemDocument
from api.schemas.request import AnyRequestDocument
from api.schemas.result import ResultDocument
from api.schemas.trace import trace_document
from api.stores.plans import PlanKind, PlanRecord, PlanState

PATHS: Final[Mapping[PlanKind, str]] = {PlanKind.PLAN: "plans", PlanKind.EVALUATION: "evaluations"}
NAMES: Final[Mapping[PlanKind, str]] = {PlanKind.PLAN: "plan", PlanKind.EVALUATION: "evaluation"}
POLL_SECONDS: Final = 1
MARGIN_SECONDS: Final = 5.0
"""Beyond the time limit of the search: to read, to predict, to write."""

_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=[,;]|$)", re.IGNORECASE)
_ASYNC: Final = re.compile(r"(?:^|[,;])\s*respond-async\s*(?=[,;]|$)", re.IGNORECASE)


async def answer_request(
    document: AnyRequestDocument, *, kind: PlanKind, request: Request, service: Service
) -> Response:
    """Take a request in and answer with its result, or with where that will be."""
    check_time_limit(document, most_seconds=service.settings.max_time_limit_seconds)
    # What nothing can answer is refused at once, and not stored.
    await run_in_threadpool(resolve, document, library=service.workspace.library)
    ticket = await run_in_threadpool(service.desk.take, document.normalised(), kind=kind)
    wait_seconds = wait_of(request, document, most_seconds=service.settings.max_wait_seconds)
    await asyncio.wait({asyncio.wrap_future(ticket.done)}, timeout=wait_seconds)
    record = await run_in_threadpool(read_record, ticket.id, kind=kind, service=service)
    return _response(
        record, path=f"/v1/{PATHS[kind]}/{ticket.id}", wait_seconds=wait_seconds, service=service
    )


def read_record(plan_id: UUID, *, kind: PlanKind, service: Service) -> PlanRecord:
    """Return what is stored of a request; 404 where there is none of this kind."""
    record = service.workspace.plans.get(plan_id)
    if record is None or record.kind is not kind:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no {NAMES[kind]} {plan_id}")
    return record


def read_result(plan_id: UUID, *, kind: PlanKind, service: Service) -> Response:
    """Answer with the result of a request, or with how far it is."""
    record = read_record(plan_id, kind=kind, service=service)
    headers = {} if record.result is not None else {"Retry-After": str(POLL_SECONDS)}
    return JSONResponse(service.desk.document(record), headers=headers)


def read_timeline(plan_id: UUID, *, kind: PlanKind, service: Service) -> Response:
    """Answer with every operation of one step, as a trace that Perfetto opens."""
    record = read_record(plan_id, kind=kind, service=service)
    if record.result is None or record.result["plan"] is None:
        raise HTTPException(HTTPStatus.CONFLICT, f"{NAMES[kind]} {plan_id} has no plan to draw")
    result = ResultDocument.model_validate(record.result)
    events = timeline(read_request(record.request), result, library=service.workspace.library)
    return JSONResponse(trace_document(events))


def wait_of(request: Request, document: AnyRequestDocument, *, most_seconds: float) -> float:
    """Return how long the answer may be waited for: as ``Prefer`` says, else as the search may take."""
    preferences = ",".join(request.headers.getlist("prefer"))
    wait = _WAIT.search(preferences)
    if wait is not None:
        return min(float(wait.group(1)), most_seconds)
    if _ASYNC.search(preferences):
        return 0.0
    return min(document.solver.time_limit_seconds + MARGIN_SECONDS, most_seconds)


def _response(record: PlanRecord, *, path: str, wait_seconds: float, service: Service) -> Response:
    """Return 201 with the result, 202 with where it will be, or the problem that prevents one."""
    document = service.desk.document(record)
    headers = {"Location": path, "Preference-Applied": f"wait={wait_seconds:.0f}"}
    if record.state is PlanState.FAILED and document["problem"] is not None:
        return problem_response(
            ProblemDocument.model_validate(document["problem"]), path=path, headers=headers
        )
    if record.result is not None:
        return JSONResponse(document, status_code=HTTPStatus.CREATED, headers=headers)
    headers["Retry-After"] = str(POLL_SECONDS)
    return JSONResponse(document, status_code=HTTPStatus.ACCEPTED, headers=headers)
