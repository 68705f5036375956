"""Profiles sent in chunks: each may be sent again, in any order, until the head ends the upload."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.dependencies import CurrentService, Service
from api.problems import problem_response
from api.profile_chunks import LISTS, body_digest, joined, upload_digest
from api.profile_upload import NothingAcceptedError, NotJsonError, parse_json, store_profile
from api.routes.profiles import PATH as PROFILES_PATH
from api.schemas.catalogue import StoredProfileDocument
from api.schemas.profile_upload import UploadDocument
from api.stores.profile_chunks import Chunk

router = APIRouter(prefix="/v1/profile-uploads", tags=["profiles"])

PATH: Final = "/v1/profile-uploads"
MOST_CHUNKS: Final = 10_000
DIGEST_LENGTH: Final = 64

Digest = Annotated[
    str,
    Path(
        pattern=rf"^[0-9a-f]{{{DIGEST_LENGTH}}}$",
        description="SHA-256 over the SHA-256 digests of all bodies, chunks in order and head, one a line.",
    ),
]
Number = Annotated[int, Path(ge=0, lt=MOST_CHUNKS, description="Which chunk it is, from 0.")]


def _body(description: str) -> Mapping[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


@router.get("/{digest}")
def read_upload(digest: Digest, service: CurrentService) -> UploadDocument:
    """Say which chunks of an upload are there: none of one that nobody began, or that has ended."""
    return UploadDocument(digest=digest, chunks=tuple(service.workspace.profile_chunks.numbers(digest)))


@router.put(
    "/{digest}/chunks/{number}",
    status_code=HTTPStatus.NO_CONTENT,
    openapi_extra=dict(_body("Rows of a profile: `kernels`, `collectives`, `transfers`, any of them.")),
)
async def put_chunk(digest: Digest, number: Number, request: Request, service: CurrentService) -> Response:
    """Keep a chunk; the same one again changes nothing."""
    body = await request.body()
    rows = _object(body)
    unknown = sorted(rows.keys() - set(LISTS))
    if unknown or not all(isinstance(value, list) for value in rows.values()):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"a chunk has lists named {', '.join(LISTS)} alone")
    chunk = Chunk(digest=body_digest(body), rows=rows)
    await run_in_threadpool(service.workspace.profile_chunks.put, digest, number, chunk)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post(
    "/{digest}",
    status_code=HTTPStatus.CREATED,
    response_model=StoredProfileDocument,
    responses={
        HTTPStatus.OK: {"model": StoredProfileDocument, "description": "It was there already"},
        HTTPStatus.CONFLICT: {"description": "Chunks are missing, or are others than the digest names"},
    },
    openapi_extra=dict(_body("`profile`: the document without its rows; `num_chunks`.")),
)
async def finish_upload(digest: Digest, request: Request, service: CurrentService) -> Response:
    """Store the profile that was sent in chunks; bad rows are refused one by one."""
    return await run_in_threadpool(_finish, digest, await request.body(), service)


def _finish(digest: str, body: bytes, service: Service) -> Response:
    head = _object(body)
    profile, number = head.get("profile"), head.get("num_chunks")
    if not isinstance(profile, dict) or not isinstance(number, int) or not 0 <= number < MOST_CHUNKS:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "an upload ends with `profile` and `num_chunks`")
    chunks = _chunks(digest, number, service)
    if upload_digest([*(chunk.digest for chunk in chunks), body_digest(body)]) != digest:
        service.workspace.profile_chunks.drop(digest)
        raise HTTPException(HTTPStatus.CONFLICT, f"what was sent is not {digest}: send all of it again")
    try:
        document = joined(profile, [chunk.rows for chunk in chunks])
        stored = store_profile(document, profiles=service.workspace.profiles)
    except NothingAcceptedError as error:
        return problem_response(error.problem, path=f"{PATH}/{digest}")
    service.workspace.profile_chunks.drop(digest)
    return JSONResponse(
        stored.model_dump(mode="json"),
        status_code=HTTPStatus.CREATED if stored.is_new else HTTPStatus.OK,
        headers={"Location": f"{PROFILES_PATH}/{stored.name}"},
    )


def _chunks(digest: str, number: int, service: Service) -> list[Chunk]:
    """Return all chunks in order; 409 where some are missing."""
    there = service.workspace.profile_chunks.all_of(digest)
    missing = [one for one in range(number) if one not in there]
    if missing:
        detail = f"{len(missing)} of {number} chunks are missing, {missing[0]} the first"
        raise HTTPException(HTTPStatus.CONFLICT, detail)
    return [there[one] for one in range(number)]


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = parse_json(body)
    except NotJsonError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
    if not isinstance(value, dict):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "an object is needed here")
    return value
