"""The form: shown, taken in, and shown again with what is wrong."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, QueryParams, UploadFile
from starlette.exceptions import HTTPException

from api.dependencies import CurrentService, Service
from api.jobs.desk import QueueFullError
from api.pages.examples import EXAMPLES
from api.pages.form_check import CheckedForm, checked, problem_faults
from api.pages.form_fields import FIELDS, Verb
from api.pages.form_page import form_page
from api.pages.form_request import WHOLE_FORM, Faults, FieldFault
from api.pages.form_values import FORBID, SOURCES, FormValues, values_of
from api.pages.http_request import without_defaults
from api.pages.rendering import page_response
from api.schemas.request import AnyRequestDocument
from api.stores.plans import PlanKind

QUICK_SECONDS: Final = 1.5
"""How long a submitted form waits for its answer before it shows the progress instead."""
MAX_FIELDS: Final = 100
KINDS: Final[Mapping[Verb, PlanKind]] = {Verb.PLAN: PlanKind.PLAN, Verb.EVALUATE: PlanKind.EVALUATION}
TEXT_FIELDS: Final = (*(name for name in FIELDS if name != FORBID), *SOURCES)

router = APIRouter(include_in_schema=False)


def refuse_other_sites(request: Request) -> None:
    """Refuse a form that a page of another site sends in the name of its reader."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise HTTPException(HTTPStatus.FORBIDDEN, "this form was sent from another site")


@router.get("/")
def show_form(request: Request, service: CurrentService) -> Response:
    """Show the form: filled in from an example, from an earlier request, or from the query."""
    query = request.query_params
    if "from" in query:
        return _earlier(query, service)
    return _form_response(_prefilled(query), verb=Verb.PLAN, faults={}, service=service)


@router.post("/plans", dependencies=[Depends(refuse_other_sites)])
async def submit_form(request: Request, service: CurrentService) -> Response:
    """Take a form in: go to what came of it, or show the form again with what is wrong."""
    async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
        values, verb, used = await _read_form(form), _verb(form), str(form.get("use", ""))
    if used:
        values = _with_suggestion(values, used)
    check = await run_in_threadpool(_check, values, verb, service)
    if used or check.request is None:
        status = HTTPStatus.OK if used else HTTPStatus.UNPROCESSABLE_ENTITY
        return await run_in_threadpool(
            _form_response, values, verb=verb, faults=check.faults, service=service, status=status
        )
    return await _answer(check.request, values, verb, service)


async def _answer(request: AnyRequestDocument, values: FormValues, verb: Verb, service: Service) -> Response:
    """Begin with a request and go to its page; to the form where the planner refuses it at once."""
    try:
        ticket = await run_in_threadpool(service.desk.take, request.normalised(), kind=KINDS[verb])
    except QueueFullError as error:
        faults = {WHOLE_FORM: (FieldFault(detail=str(error)),)}
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return await run_in_threadpool(
            _form_response, values, verb=verb, faults=faults, service=service, status=status
        )
    await asyncio.wait({asyncio.wrap_future(ticket.done)}, timeout=QUICK_SECONDS)
    record = await run_in_threadpool(service.workspace.plans.get, ticket.id)
    problem = ((record and record.result) or {}).get("problem")
    is_refused = problem is not None and bool(problem["errors"])
    path = f"/?from={ticket.id}" if is_refused else f"/plans/{ticket.id}"
    return RedirectResponse(path, status_code=HTTPStatus.SEE_OTHER)


def _prefilled(query: QueryParams) -> FormValues:
    """Return what the form begins with; the first example where nothing else is asked for."""
    example = EXAMPLES.get(query.get("example", ""), next(iter(EXAMPLES.values())))
    return _changed(values_of(example.request, verb=Verb.PLAN), query)


def _changed(values: FormValues, query: QueryParams) -> FormValues:
    """Return the form with the fields that a query names."""
    for name in TEXT_FIELDS:
        if name in query:
            values = values.with_text(name, query[name])
    return values


def _earlier(query: QueryParams, service: Service) -> Response:
    """Show the form of an earlier request, with the problem that it met."""
    plan_id = query["from"]
    try:
        record = service.workspace.plans.get(UUID(plan_id))
    except ValueError:
        record = None
    if record is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no plan {plan_id[:100]}")
    verb = Verb.EVALUATE if record.kind is PlanKind.EVALUATION else Verb.PLAN
    request = without_defaults(record.request, is_evaluation=verb is Verb.EVALUATE)
    faults = problem_faults((record.result or {}).get("problem"), verb=verb)
    values = _changed(values_of(request, verb=verb), query)
    return _form_response(values, verb=verb, faults=faults, service=service)


async def _read_form(form: FormData) -> FormValues:
    """Return what was typed; the text of an uploaded file stands in its field from then on."""
    example = EXAMPLES.get(str(form.get("example", "")))
    if example is not None:
        return values_of(example.request, verb=Verb.PLAN)
    texts = {name: str(form[name]) for name in TEXT_FIELDS if name in form}
    upload = form.get("model_file")
    if isinstance(upload, UploadFile) and upload.size:
        texts["model_config"] = (await upload.read()).decode("utf-8", "replace")
    return FormValues(texts=texts, forbid=tuple(map(str, form.getlist(FORBID))))


def _verb(form: FormData) -> Verb:
    """Return what is asked for; a suggestion asks for what the form asked for before."""
    asked = form.get("verb") or form.get("verb_before")
    return Verb.EVALUATE if asked == Verb.EVALUATE else Verb.PLAN


def _with_suggestion(values: FormValues, used: str) -> FormValues:
    """Return the form with a suggestion, ``field=text``, in its field."""
    name, _, text = used.partition("=")
    if name not in FIELDS:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"there is no field {name[:100]}")
    return values.with_text(name, text)


def _check(values: FormValues, verb: Verb, service: Service) -> CheckedForm:
    return checked(
        values,
        verb=verb,
        library=service.workspace.library,
        most_seconds=service.settings.max_time_limit_seconds,
    )


def _form_response(
    values: FormValues,
    *,
    verb: Verb,
    faults: Faults,
    service: Service,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    machines = service.workspace.library.machines()
    page = form_page(values, verb=verb, faults=faults, machines=machines)
    return page_response("form.html", here="/", status=status, page=page)
