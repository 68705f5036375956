"""Profiles sent in chunks: in any order, again and again, the head last."""

import json
from http import HTTPStatus

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from api.profile_chunks import Upload
from tests.unit.api.machines import machine_profile

KERNEL = machine_profile()["kernels"][0]
PATH = "/v1/profile-uploads"


def put(client: TestClient, upload: Upload, number: int) -> int:
    return client.put(f"{PATH}/{upload.digest}/chunks/{number}", content=upload.chunks[number]).status_code


def finish(client: TestClient, upload: Upload) -> Response:
    return client.post(f"{PATH}/{upload.digest}", content=upload.head)


def test_profile_that_was_sent_in_chunks_is_the_profile(client: TestClient) -> None:
    upload = Upload.of(machine_profile(), chunk_bytes=1)
    for number in reversed(range(len(upload.chunks))):
        assert put(client, upload, number) == HTTPStatus.NO_CONTENT
    answer = finish(client, upload)

    assert answer.status_code == HTTPStatus.CREATED
    whole = client.post("/v1/profiles", json=machine_profile())
    assert whole.json() == answer.json() | {"is_new": False}
    assert client.get(answer.headers["location"]).json()["facts"] == machine_profile()["facts"]


def test_an_upload_says_which_chunks_it_has(client: TestClient) -> None:
    upload = Upload.of(machine_profile(), chunk_bytes=1)
    put(client, upload, 2)
    put(client, upload, 0)
    put(client, upload, 2)

    assert client.get(f"{PATH}/{upload.digest}").json() == {"digest": upload.digest, "chunks": [0, 2]}


def test_missing_chunks_are_told(client: TestClient) -> None:
    upload = Upload.of(machine_profile(), chunk_bytes=1)
    put(client, upload, 0)
    answer = finish(client, upload)

    assert answer.status_code == HTTPStatus.CONFLICT
    assert (
        f"{len(upload.chunks) - 1} of {len(upload.chunks)} chunks are missing, 1" in answer.json()["detail"]
    )


def test_chunks_that_are_others_than_the_digest_names_are_thrown_away(client: TestClient) -> None:
    upload = Upload.of(machine_profile())
    client.put(f"{PATH}/{upload.digest}/chunks/0", content=json.dumps({"kernels": [KERNEL]}))
    answer = finish(client, upload)

    assert answer.status_code == HTTPStatus.CONFLICT
    assert client.get(f"{PATH}/{upload.digest}").json()["chunks"] == []


def test_the_same_upload_again_changes_nothing(client: TestClient) -> None:
    upload = Upload.of(machine_profile())
    answers = []
    for _ in range(2):
        put(client, upload, 0)
        answers.append(finish(client, upload))

    assert [answer.status_code for answer in answers] == [HTTPStatus.CREATED, HTTPStatus.OK]
    assert answers[1].json() == answers[0].json() | {"is_new": False}


def test_bad_rows_are_refused_by_their_places_in_the_whole_document(client: TestClient) -> None:
    kernels = [KERNEL, {**KERNEL, "seconds": -1}, KERNEL, {**KERNEL, "dtype": "fp17"}]
    upload = Upload.of(machine_profile(kernels=kernels), chunk_bytes=1)
    for number in range(len(upload.chunks)):
        put(client, upload, number)
    stored = finish(client, upload).json()

    assert [row["pointer"] for row in stored["refused"]] == ["/kernels/1", "/kernels/3"]


def test_profile_without_a_good_row_is_a_problem(client: TestClient) -> None:
    upload = Upload.of(machine_profile(kernels=[{**KERNEL, "seconds": 0}], collectives=[]))
    put(client, upload, 0)
    answer = finish(client, upload)

    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert answer.json()["errors"][0]["pointer"] == "/kernels/0"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"{'a' * 64}/chunks/0", "not JSON"),
        ("PUT", f"{'a' * 64}/chunks/0", "[]"),
        ("PUT", f"{'a' * 64}/chunks/0", '{"colours": []}'),
        ("PUT", f"{'a' * 64}/chunks/0", '{"kernels": 1}'),
        ("POST", "a" * 64, "{}"),
        ("POST", "a" * 64, '{"profile": {}, "num_chunks": -1}'),
    ],
)
def test_nonsense_is_refused(client: TestClient, method: str, path: str, body: str) -> None:
    answer = client.request(method, f"{PATH}/{path}", content=body)

    assert answer.status_code == HTTPStatus.BAD_REQUEST
    assert answer.json()["detail"]


@pytest.mark.parametrize("path", ["nothing", f"{'a' * 64}/chunks/-1", f"{'a' * 64}/chunks/10000"])
def test_addresses_that_name_no_upload_are_refused(client: TestClient, path: str) -> None:
    answer = client.request("PUT" if "chunks" in path else "GET", f"{PATH}/{path}", content="{}")

    assert answer.status_code == HTTPStatus.NOT_FOUND
