"""Profiles: what was measured on one kind of hardware."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.catalogue import list_profiles, show_profile
from api.dependencies import CurrentService, Service
from api.names import found
from api.pages.profile_report import report_context
from api.pages.rendering import page_response
from api.problems import problem_response
from api.profile_upload import NothingAcceptedError, NotJsonError, parse_json, store_profile
from api.schemas.catalogue import ProfileListDocument, StoredProfileDocument

router = APIRouter(prefix="/v1/profiles", tags=["profiles"])
pages = APIRouter(include_in_schema=False)

PATH: Final = "/v1/profiles"
PROFILE_BODY: Final[Mapping[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "A profile document, as the profiler writes it.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@router.get("")
def read_profiles(service: CurrentService) -> ProfileListDocument:
    """List all profiles."""
    return ProfileListDocument(profiles=list_profiles(service.workspace.profiles))


@router.get("/{name:path}")
def read_profile(name: str, service: CurrentService) -> Response:
    """Return a profile with all its measurements, as it can be sent back."""
    with found(name):
        return JSONResponse(show_profile(name, profiles=service.workspace.profiles))


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    response_model=StoredProfileDocument,
    responses={HTTPStatus.OK: {"model": StoredProfileDocument, "description": "It was there already"}},
    openapi_extra=dict(PROFILE_BODY),
)
async def create_profile(request: Request, service: CurrentService) -> Response:
    """Store measurements; bad rows are refused one by one. The same document again changes nothing."""
    return await run_in_threadpool(_store, await request.body(), service)


@pages.get("/profiles/{name:path}")
def show_report(name: str, service: CurrentService) -> Response:
    """Show what a profile holds: its curves with what lies off them, what it covers, what was odd."""
    with found(name):
        (entry,) = service.workspace.library.named([name])
    return page_response("profile.html", here="/profiles", report=report_context(entry.profile))


def _store(body: bytes, service: Service) -> Response:
    try:
        stored = store_profile(parse_json(body), profiles=service.workspace.profiles)
    except NotJsonError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
    except NothingAcceptedError as error:
        return problem_response(error.problem, path=PATH)
    return JSONResponse(
        stored.model_dump(mode="json"),
        status_code=HTTPStatus.CREATED if stored.is_new else HTTPStatus.OK,
        headers={"Location": f"{PATH}/{stored.name}"},
    )
