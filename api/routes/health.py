"""Whether the service lives, and whether it can answer."""

from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import SQLAlchemyError

from api.dependencies import CurrentService
from api.problems import problem_response
from api.schemas.problem import ProblemDocument

router = APIRouter(tags=["health"])


@router.get("/healthz")
def check_health() -> dict[str, str]:
    """Say that the service lives."""
    return {"status": "ok"}


@router.get("/readyz")
def check_readiness(service: CurrentService) -> Response:
    """Say whether the database answers and has the tables of this version."""
    try:
        is_migrated = service.workspace.is_migrated()
    except SQLAlchemyError:
        return _unready("the database does not answer")
    return JSONResponse({"status": "ready"}) if is_migrated else _unready("the database is not migrated")


def _unready(detail: str) -> Response:
    problem = ProblemDocument.of_status(HTTPStatus.SERVICE_UNAVAILABLE, detail)
    return problem_response(problem, path="/readyz")
