"""Plans: the best way to train a model on some machines."""

from http import HTTPStatus
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.dependencies import CurrentService
from api.routes.answers import answer_request, read_result, read_timeline
from api.schemas.request import PlanRequestDocument
from api.schemas.result import ResultDocument
from api.stores.plans import PlanKind

router = APIRouter(prefix="/v1/plans", tags=["plans"])


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    response_model=ResultDocument,
    responses={HTTPStatus.ACCEPTED: {"model": ResultDocument, "description": "Not done yet; see Location"}},
)
async def create_plan(document: PlanRequestDocument, request: Request, service: CurrentService) -> Response:
    """Find the optimal plan. ``Prefer: wait=N`` says for how many seconds the answer may be waited for."""
    return await answer_request(document, kind=PlanKind.PLAN, request=request, service=service)


@router.get("/{plan_id}", response_model=ResultDocument)
def read_plan(plan_id: UUID, service: CurrentService) -> Response:
    """Return a plan, or how far the search for it is."""
    return read_result(plan_id, kind=PlanKind.PLAN, service=service)


@router.get("/{plan_id}/timeline")
def read_plan_timeline(plan_id: UUID, service: CurrentService) -> Response:
    """Return the timeline of one step of a plan, as a trace that Perfetto opens."""
    return read_timeline(plan_id, kind=PlanKind.PLAN, service=service)
