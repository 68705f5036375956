"""Everything that goes wrong while a request is answered, as problem documents."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, get_type_hints

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.jobs.desk import QueueFullError
from api.names import NameNotFoundError
from api.request_ids import current_request_id
from api.schemas.faults import faults_from
from api.schemas.problem import MEDIA_TYPE, ProblemDocument
from planner.errors import InvalidRequest

log = logging.getLogger(__name__)

UNEXPECTED = "something went wrong here; the log says what, under the request id"
RETRY_SECONDS = 5


def problem_response(
    problem: ProblemDocument, *, path: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a problem as the answer to a request for ``path``."""
    told = problem.model_copy(update={"instance": path, "request_id": current_request_id()})
    # Escapes keep half characters, which an unknown name may hold and UTF-8 does not have.
    content = json.dumps(told.model_dump(mode="json"))
    return Response(content, status_code=problem.status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def add_problem_handlers(app: FastAPI) -> None:
    """Make an application answer with problem documents wherever it would answer with an error."""
    app.add_exception_handler(RequestValidationError, _on_invalid_document)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(InvalidRequest, _on_invalid_request)
    app.add_exception_handler(NameNotFoundError, _on_unknown_name)
    app.add_exception_handler(QueueFullError, _on_full_queue)


class UnexpectedErrorMiddleware:
    """Answers with a problem document where the application raises, and logs why."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, whatever happens; an answer that has begun already is cut short."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_and_remember(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_remember)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if has_begun:
                raise
            problem = ProblemDocument.of_status(HTTPStatus.INTERNAL_SERVER_ERROR, UNEXPECTED)
            await problem_response(problem, path=scope["path"])(scope, receive, send)


def _on_invalid_document(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    places = {str(entry["loc"][0]) for entry in errors}
    if places == {"path"}:
        problem = ProblemDocument.of_status(HTTPStatus.NOT_FOUND, f"there is no {request.url.path}")
    elif places != {"body"}:
        entry = errors[0]
        detail = f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}"
        problem = ProblemDocument.of_status(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    else:
        problem = _body_problem(request, error)
    return problem_response(problem, path=request.url.path)


def _body_problem(request: Request, error: RequestValidationError) -> ProblemDocument:
    """Return what is wrong with a body: no JSON at all, or fields at fault."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        detail = f"this is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
        return ProblemDocument.of_status(HTTPStatus.BAD_REQUEST, detail)
    if not _is_json(request):
        detail = "send JSON, with the header Content-Type: application/json"
        return ProblemDocument.of_status(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
    errors = [{**entry, "loc": entry["loc"][1:]} for entry in error.errors()]
    return ProblemDocument.of_faults(faults_from(errors, document=error.body, schema=_body_schema(request)))


def _is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def _body_schema(request: Request) -> type[BaseModel]:
    """Return the document that the route wants as its body."""
    hints: Mapping[str, Any] = get_type_hints(request.scope["endpoint"])
    return next(
        (hint for hint in hints.values() if isinstance(hint, type) and issubclass(hint, BaseModel)), BaseModel
    )


def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = error.detail
    if status is HTTPStatus.NOT_FOUND and detail == status.phrase:
        detail = f"there is no {request.url.path}"
    if status is HTTPStatus.METHOD_NOT_ALLOWED and detail == status.phrase:
        detail = f"{request.url.path} does not take {request.method}"
    return problem_response(
        ProblemDocument.of_status(status, detail), path=request.url.path, headers=error.headers
    )


def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidRequest)
    return problem_response(ProblemDocument.of_invalid_request(error), path=request.url.path)


def _on_unknown_name(request: Request, error: Exception) -> Response:
    assert isinstance(error, NameNotFoundError)
    return problem_response(error.problem, path=request.url.path)


def _on_full_queue(request: Request, error: Exception) -> Response:
    problem = ProblemDocument.of_status(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return problem_response(problem, path=request.url.path, headers={"Retry-After": str(RETRY_SECONDS)})
