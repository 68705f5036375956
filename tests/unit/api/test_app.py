"""Whatever goes wrong is answered with a problem document that has the id of the request."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.jobs.work import Work
from api.request_ids import HEADER
from api.schemas.problem import MEDIA_TYPE
from tests.unit.api.services import EVALUATION, REQUEST, given, inline, running_service

JSON = {"Content-Type": "application/json"}


def problem(answer: Any, status: HTTPStatus) -> dict[str, Any]:  # noqa: ANN401 - a response
    assert answer.status_code == status
    assert answer.headers["content-type"] == MEDIA_TYPE
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert document["request_id"] == answer.headers[HEADER]
    assert "Traceback" not in answer.text
    return document


def test_a_path_that_nothing_has(client: TestClient) -> None:
    document = problem(client.get("/v2"), HTTPStatus.NOT_FOUND)
    assert document["instance"] == "/v2"
    assert document["detail"] == "there is no /v2"


def test_a_method_that_a_path_does_not_take(client: TestClient) -> None:
    answer = client.delete("/v1/plans")
    assert "does not take DELETE" in problem(answer, HTTPStatus.METHOD_NOT_ALLOWED)["detail"]
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"model": ', "this is not JSON: Expecting value at character 10"),
        (b"", "is missing"),
        (b"[" * 100_000, ""),
        (b"1" * 10_000, ""),
        (b"\xff\xfe\xfd", ""),
    ],
    ids=["cut short", "empty", "too deep", "too long a number", "no text"],
)
def test_a_body_that_is_no_json(client: TestClient, body: bytes, detail: str) -> None:
    answer = client.post("/v1/plans", content=body, headers=JSON)
    document = problem(answer, HTTPStatus(answer.status_code))
    assert answer.status_code in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
    assert detail in document["detail"]


def test_a_body_of_another_type(client: TestClient) -> None:
    answer = client.post("/v1/plans", content=b"{}", headers={"Content-Type": "text/plain"})
    assert "Content-Type" in problem(answer, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)["detail"]


def test_a_field_at_fault(client: TestClient) -> None:
    answer = client.post("/v1/plans", json={**REQUEST, "job": {"global_batch_size": -1}})
    document = problem(answer, HTTPStatus.UNPROCESSABLE_ENTITY)
    assert document["pointer"] == "/job/global_batch_size"
    assert document["nearest_legal"] == [1]
    assert [fault["pointer"] for fault in document["errors"]] == ["/job/global_batch_size"]


def test_nan_is_named_although_json_lacks_it(client: TestClient) -> None:
    body = b'{"model": {"preset": "a"}, "cluster": {"preset": "b", "num_devices": NaN}, "job": {}}'
    document = problem(client.post("/v1/plans", content=body, headers=JSON), HTTPStatus.UNPROCESSABLE_ENTITY)
    assert document["pointer"] == "/cluster/num_devices"


def test_an_unknown_field_that_no_text_can_hold(client: TestClient) -> None:
    answer = client.post("/v1/plans", content=b'{"\\ud800": 1}', headers=JSON)
    problem(answer, HTTPStatus.UNPROCESSABLE_ENTITY)


@pytest.mark.parametrize(
    ("change", "pointer", "nearest"),
    [
        ({"model": {"preset": "gpt2-124m"}}, "/model/preset", "gpt-2-124m"),
        ({"cluster": {"preset": "h100", "num_devices": 2}}, "/cluster/preset", "h100-sxm"),
        ({"profiles": ["h100-sxm/publisht"]}, "/profiles/0", "h100-sxm/published"),
        ({"cluster": {"preset": "h100-sxm", "num_devices": 12}}, "/cluster/num_devices", 8),
        ({"job": {"global_batch_size": 8}}, "/job/sequence_length", 1024),
        ({"solver": {"time_limit_seconds": 1e5}}, "/solver/time_limit_seconds", 3600.0),
        (
            {"job": {"global_batch_size": 8, "sequence_length": 8, "loss": "dpp"}},
            "/job/loss",
            "dpo",
        ),
    ],
)
def test_a_name_or_value_that_nothing_answers_to(
    client: TestClient, change: dict[str, Any], pointer: str, nearest: object
) -> None:
    answer = client.post("/v1/plans", json={**REQUEST, **change})
    document = problem(answer, HTTPStatus.UNPROCESSABLE_ENTITY)
    assert document["pointer"] == pointer
    assert nearest in document["nearest_legal"]


class TestLargeBodies:
    @pytest.fixture
    def small(self, seeded_url: str) -> Iterator[TestClient]:
        with running_service(seeded_url, make_runner=inline, max_body_bytes=1000) as client:
            yield client

    def test_a_body_that_says_its_length(self, small: TestClient) -> None:
        answer = small.post("/v1/plans", content=b" " * 1001, headers=JSON)
        assert "larger than" in problem(answer, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)["detail"]

    def test_a_body_that_comes_piece_by_piece(self, small: TestClient) -> None:
        pieces = (b" " * 100 for _ in range(11))
        answer = small.post("/v1/plans", content=pieces, headers=JSON)
        problem(answer, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def test_a_body_at_the_limit_is_read(self, small: TestClient) -> None:
        answer = small.post("/v1/plans", content=b" " * 1000, headers=JSON)
        assert answer.status_code != HTTPStatus.REQUEST_ENTITY_TOO_LARGE

    def test_a_profile_may_be_larger(self, small: TestClient) -> None:
        answer = small.post("/v1/profiles", content=b" " * 1001, headers=JSON)
        problem(answer, HTTPStatus.BAD_REQUEST)


class BrokenRunner:
    """A runner with a mistake in it."""

    def submit(self, work: Work) -> Future[None]:
        del work
        raise ArithmeticError("seven is not eight")

    def close(self) -> None:
        pass


def test_a_mistake_of_ours_is_logged_and_not_told(seeded_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with running_service(seeded_url, make_runner=given(BrokenRunner())) as client:
        answer = client.post("/v1/evaluations", json=EVALUATION)
    document = problem(answer, HTTPStatus.INTERNAL_SERVER_ERROR)
    assert "seven" not in answer.text
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "seven is not eight" in str(errors[0].exc_info)
    assert document["request_id"]


def test_the_callers_id_is_kept_where_it_is_one(client: TestClient) -> None:
    assert client.get("/healthz", headers={HEADER: "my-id.7"}).headers[HEADER] == "my-id.7"
    for nonsense in ("", "a b", "x" * 65, "a;b"):
        assert client.get("/healthz", headers={HEADER: nonsense}).headers[HEADER] != nonsense


def test_the_service_lives_and_is_ready(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
