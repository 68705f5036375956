"""Evaluations: what a plan that the caller fixes would do."""

from http import HTTPStatus
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.dependencies import CurrentService
from api.routes.answers import answer_request, read_result, read_timeline
from api.schemas.request import EvaluationRequestDocument
from api.schemas.result import ResultDocument
from api.stores.plans import PlanKind

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"])


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    response_model=ResultDocument,
    responses={HTTPStatus.ACCEPTED: {"model": ResultDocument, "description": "Not done yet; see Location"}},
)
async def create_evaluation(
    document: EvaluationRequestDocument, request: Request, service: CurrentService
) -> Response:
    """Predict a plan. An illegal one is answered with the rules that it breaks."""
    return await answer_request(document, kind=PlanKind.EVALUATION, request=request, service=service)


@router.get("/{evaluation_id}", response_model=ResultDocument)
def read_evaluation(evaluation_id: UUID, service: CurrentService) -> Response:
    """Return an evaluation, or how far it is."""
    return read_result(evaluation_id, kind=PlanKind.EVALUATION, service=service)


@router.get("/{evaluation_id}/timeline")
def read_evaluation_timeline(evaluation_id: UUID, service: CurrentService) -> Response:
    """Return the timeline of one step of the evaluated plan, as a trace that Perfetto opens."""
    return read_timeline(evaluation_id, kind=PlanKind.EVALUATION, service=service)
