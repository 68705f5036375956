"""Plans and evaluations over HTTP: answered at once, or later where that takes longer."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

import pytest
from starlette.testclient import TestClient

from api.schemas.request import EvaluationRequestDocument
from api.stores.plans import PlanState
from api.workspace import open_workspace
from tests.unit.api.services import EVALUATION, REQUEST, HeldRunner, given, running_service


def test_a_plan_is_made_stored_and_found_again(client: TestClient) -> None:
    answer = client.post("/v1/plans", json=REQUEST)
    assert answer.status_code == HTTPStatus.CREATED
    document = answer.json()
    assert (document["state"], document["status"]) == ("done", "optimal")
    assert document["certificate"]["proven_optimal"]
    assert document["request"]["constraints"]["memory_fraction"] == 0.94
    found = client.get(answer.headers["location"])
    assert found.status_code == HTTPStatus.OK
    assert found.json() == document
    assert answer.headers["location"] == f"/v1/plans/{document['id']}"


def test_the_plan_of_an_answer_evaluates_to_the_same_prediction(client: TestClient) -> None:
    planned = client.post("/v1/plans", json=REQUEST).json()
    evaluated = client.post("/v1/evaluations", json={**REQUEST, "plan": planned["plan"]}).json()
    assert evaluated["status"] == "fits"
    assert evaluated["plan"] == planned["plan"]
    assert evaluated["prediction"] == planned["prediction"]


def test_an_evaluation_is_no_plan(client: TestClient) -> None:
    evaluated = client.post("/v1/evaluations", json=EVALUATION)
    assert evaluated.status_code == HTTPStatus.CREATED
    assert client.get(evaluated.headers["location"]).json() == evaluated.json()
    answer = client.get(f"/v1/plans/{evaluated.json()['id']}")
    assert answer.status_code == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("path", [f"/v1/plans/{UUID(int=0)}", "/v1/plans/none", "/v1/evaluations/none"])
def test_what_is_not_there_is_not_found(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == HTTPStatus.NOT_FOUND


def test_an_illegal_plan_is_no_error(client: TestClient) -> None:
    answer = client.post("/v1/evaluations", json={**REQUEST, "plan": {"tensor_parallel": 5}})
    assert answer.status_code == HTTPStatus.CREATED
    assert answer.json()["status"] == "illegal"
    assert answer.json()["violations"][0]["pointer"] == "/plan/tensor_parallel"


def test_an_illegal_constraint_is_a_problem(client: TestClient) -> None:
    constraints = {"fixed": {"tensor_parallel": 5}}
    answer = client.post("/v1/plans", json={**REQUEST, "constraints": constraints})
    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert answer.json()["pointer"] == "/constraints/fixed/tensor_parallel"
    assert answer.json()["instance"].startswith("/v1/plans/")


def test_a_step_can_be_opened_as_a_trace(client: TestClient) -> None:
    evaluated = client.post("/v1/evaluations", json=EVALUATION)
    trace = client.get(f"{evaluated.headers['location']}/timeline").json()
    operations = {event["cat"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert {"forward", "backward"} <= operations


def test_an_illegal_plan_has_no_trace(client: TestClient) -> None:
    evaluated = client.post("/v1/evaluations", json={**REQUEST, "plan": {"tensor_parallel": 5}})
    answer = client.get(f"{evaluated.headers['location']}/timeline")
    assert answer.status_code == HTTPStatus.CONFLICT


class TestAnswersThatTakeLonger:
    @pytest.mark.parametrize("preference", ["wait=0", "respond-async", "foo=bar, wait=0", 'wait="0"'])
    def test_are_promised_where_they_will_be(self, seeded_url: str, preference: str) -> None:
        runner = HeldRunner()
        with running_service(seeded_url, make_runner=given(runner)) as client:
            answer = client.post("/v1/plans", json=REQUEST, headers={"Prefer": preference})
            assert answer.status_code == HTTPStatus.ACCEPTED
            assert answer.headers["preference-applied"] == "wait=0"
            found = client.get(answer.headers["location"])
            assert found.status_code == HTTPStatus.OK
            assert found.headers["retry-after"] == "1"
            assert found.json()["state"] == "queued"
            assert found.json()["status"] is None

    def test_are_waited_for_no_longer_than_the_service_allows(self, seeded_url: str) -> None:
        runner = HeldRunner()
        with running_service(seeded_url, make_runner=given(runner), max_wait_seconds=0) as client:
            answer = client.post("/v1/plans", json=REQUEST, headers={"Prefer": "wait=60"})
            assert answer.status_code == HTTPStatus.ACCEPTED

    def test_are_cancelled_when_the_service_ends(self, seeded_url: str) -> None:
        with running_service(seeded_url, make_runner=given(HeldRunner())) as client:
            answer = client.post("/v1/plans", json=REQUEST, headers={"Prefer": "wait=0"})
        workspace = open_workspace(seeded_url)
        record = workspace.plans.get(UUID(answer.json()["id"]))
        workspace.close()
        assert record is not None
        assert record.state is PlanState.CANCELLED

    def test_are_refused_when_too_many_wait(self, seeded_url: str) -> None:
        runner = HeldRunner()
        with running_service(seeded_url, make_runner=given(runner), max_queued_plans=1) as client:
            promised = [
                client.post("/v1/plans", json=REQUEST, headers={"Prefer": "wait=0"}) for _ in range(3)
            ]
        assert [answer.status_code for answer in promised] == [
            HTTPStatus.ACCEPTED,
            HTTPStatus.ACCEPTED,
            HTTPStatus.SERVICE_UNAVAILABLE,
        ]
        assert promised[-1].headers["retry-after"]


def test_what_cannot_be_answered_is_not_stored(seeded_url: str) -> None:
    runner = HeldRunner()
    request: dict[str, Any] = {**REQUEST, "model": {"preset": "gpt-5"}}
    with running_service(seeded_url, make_runner=given(runner)) as client:
        assert client.post("/v1/plans", json=request).status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert runner.taken == []


def test_the_request_is_echoed_with_its_defaults(client: TestClient) -> None:
    echoed = client.post("/v1/evaluations", json=EVALUATION).json()["request"]
    assert echoed == EvaluationRequestDocument.model_validate(EVALUATION).normalised()
