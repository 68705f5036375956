"""The pages that show something: a plan, and what plans, models, clusters, devices and profiles there are."""

from http import HTTPStatus
from pathlib import Path
from typing import Final
from uuid import UUID

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from api.catalogue import list_clusters, list_models, list_profiles
from api.dependencies import CurrentService, Service
from api.jobs.answering import read_request, timeline
from api.pages.api_overview import operations
from api.pages.examples import EXAMPLES
from api.pages.http_request import curl_command
from api.pages.lists import clusters_page, devices_page, models_page, plans_page, profiles_page
from api.pages.plan_page import plan_page
from api.pages.progress import waiting_page
from api.pages.rendering import page_response
from api.pages.stage_table import SHOWN_STAGES
from api.routes import form
from api.schemas.result import ResultDocument
from api.stores.plans import PlanKind, PlanRecord, PlanState
from planner.errors import InvalidRequest, MissingMeasurements
from planner.plan import TimelineEvent

STATIC: Final = Path(__file__).parent.parent / "static"

router = APIRouter(include_in_schema=False)
router.include_router(form.router)


def add_pages(app: FastAPI) -> None:
    """Make an application serve the pages, and what they are dressed in."""
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")


@router.get("/plans/{plan_id}")
def show_plan(plan_id: UUID, request: Request, service: CurrentService) -> Response:
    """Show a finished plan or evaluation, or how far it is."""
    record = service.workspace.plans.get(plan_id)
    if record is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no plan {plan_id}")
    document = service.desk.document(record)
    if document["state"] != PlanState.DONE:
        return page_response("waiting.html", here="/plans", page=waiting_page(document))
    page = plan_page(
        document,
        is_evaluation=record.kind is PlanKind.EVALUATION,
        timeline=_timeline(record, service),
        base_url=str(request.base_url),
    )
    return page_response("plan.html", here="/plans", page=page, shown_stages=SHOWN_STAGES)


@router.get("/plans")
def show_plans(service: CurrentService) -> Response:
    """Show the newest requests."""
    return page_response("list.html", here="/plans", page=plans_page(service.workspace.plans.recent()))


@router.get("/models")
def show_models() -> Response:
    """Show the models that a request may name."""
    return page_response("list.html", here="/models", page=models_page(list_models()))


@router.get("/clusters")
def show_clusters(service: CurrentService) -> Response:
    """Show the systems and the measured machines that a request may name."""
    page = clusters_page(list_clusters(service.workspace.library))
    return page_response("list.html", here="/clusters", page=page)


@router.get("/devices")
def show_devices(service: CurrentService) -> Response:
    """Show the devices that a node group may be of."""
    page = devices_page(service.workspace.devices.list_all())
    return page_response("list.html", here="/devices", page=page)


@router.get("/profiles")
def show_profiles(service: CurrentService) -> Response:
    """Show the measurements that predictions are made from."""
    page = profiles_page(list_profiles(service.workspace.profiles))
    return page_response("list.html", here="/profiles", page=page)


@router.get("/docs")
def show_api(request: Request) -> Response:
    """Show what programs may ask."""
    app = request.app
    assert isinstance(app, FastAPI)
    example = next(iter(EXAMPLES.values())).request
    return page_response(
        "overview.html",
        here="/docs",
        operations=operations(app.openapi()),
        example=curl_command(example, base_url=str(request.base_url), is_evaluation=False),
    )


def _timeline(record: PlanRecord, service: Service) -> tuple[TimelineEvent, ...]:
    """Return the operations of one step; none where the plan cannot be replayed any more."""
    if record.result is None or record.result["plan"] is None:
        return ()
    result = ResultDocument.model_validate(record.result)
    try:
        return timeline(read_request(record.request), result, library=service.workspace.library)
    except (InvalidRequest, MissingMeasurements):
        # A profile that was deleted since; the stored numbers stay true.
        return ()
