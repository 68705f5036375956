from http import HTTPStatus
from uuid import UUID

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from api.dependencies import Service
from api.stores.plans import PlanKind, PlanState, PlanStore
from tests.unit.api.pages.documents import planned, request, unfinished
from tests.unit.api.services import REQUEST


@pytest.fixture(autouse=True)
def _as_a_browser(client: TestClient) -> None:
    client.headers["Accept"] = "text/html,application/xhtml+xml,*/*;q=0.8"


@pytest.fixture
def plans(client: TestClient) -> PlanStore:
    app = client.app
    assert isinstance(app, FastAPI)
    service = app.state.service
    assert isinstance(service, Service)
    return service.workspace.plans


def _evaluate(client: TestClient, **plan: object) -> str:
    """Return the id of an evaluation on two devices."""
    answer = client.post("/v1/evaluations", json={**REQUEST, "plan": plan})
    assert answer.status_code == HTTPStatus.CREATED
    return str(answer.json()["id"])


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("/", ("How should this model be trained", "llama-3-70b (70.6 billion)")),
        ("/plans", ("Recent plans",)),
        ("/models", ("qwen2.5-32b", "32.8 billion")),
        ("/clusters", ("h100-sxm", "DGX H100")),
        ("/devices", ("H100-SXM5-80GB", "TFLOP/s")),
        ("/profiles", ("h100-sxm/published", "built in")),
        ("/docs", ("POST /v1/plans", "curl")),
    ],
)
def test_every_page_of_the_navigation_is_there(client: TestClient, path: str, texts: tuple[str, ...]) -> None:
    response = client.get(path)
    assert response.status_code == HTTPStatus.OK
    assert "default-src 'none'" in response.headers["content-security-policy"]
    for text in texts:
        assert text in response.text


def test_a_finished_evaluation_is_shown_with_its_timeline(client: TestClient) -> None:
    html = client.get(f"/plans/{_evaluate(client, pipeline_parallel=2)}").text
    assert "One step, replayed" in html
    assert "Where the time goes" in html


def test_an_illegal_plan_is_shown_with_the_rules_it_breaks(client: TestClient) -> None:
    html = client.get(f"/plans/{_evaluate(client, tensor_parallel=5, data_parallel=1)}").text
    assert "Broken rules" in html
    assert "One step, replayed" not in html


def test_a_plan_that_cannot_be_replayed_any_more_keeps_its_numbers(
    client: TestClient, plans: PlanStore
) -> None:
    asked = request() | {"profiles": ["deleted/since"]}
    plan_id = plans.add(
        asked,
        kind=PlanKind.PLAN,
        state=PlanState.DONE,
        status="optimal",
        result=planned() | {"request": asked},
    )
    html = client.get(f"/plans/{plan_id}").text
    assert "137.6" in html
    assert "One step, replayed" not in html


def test_a_running_search_is_refreshed_and_a_failed_one_says_why(
    client: TestClient, plans: PlanStore
) -> None:
    running = plans.add(request(), kind=PlanKind.PLAN, state=PlanState.RUNNING)
    html = client.get(f"/plans/{running}").text
    assert "Planning" in html
    assert 'http-equiv="refresh"' in html
    problem = {"title": "x", "status": 500, "detail": "the worker process died", "errors": []}
    failed = plans.add(
        request(),
        kind=PlanKind.PLAN,
        state=PlanState.FAILED,
        result=unfinished("failed") | {"progress": None, "problem": problem},
    )
    html = client.get(f"/plans/{failed}").text
    assert "the worker process died" in html
    assert 'http-equiv="refresh"' not in html
    assert "the worker process died" in client.get(f"/?from={failed}").text


def test_recent_plans_lead_to_their_pages(client: TestClient) -> None:
    plan_id = _evaluate(client, data_parallel=2)
    assert f'href="/plans/{plan_id}"' in client.get("/plans").text


@pytest.mark.parametrize("path", ["/plans/nonsense", f"/plans/{UUID(int=0)}", "/nowhere"])
def test_what_is_not_there_is_a_page(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == HTTPStatus.NOT_FOUND
    assert "<h1>Not Found</h1>" in response.text


@pytest.mark.parametrize("name", ["base.css", "charts.css", "pages.js", "icon.svg"])
def test_what_pages_are_dressed_in_is_served_from_here(client: TestClient, name: str) -> None:
    response = client.get(f"/static/{name}")
    assert response.status_code == HTTPStatus.OK
    assert "//" not in response.text.replace("http://www.w3.org/2000/svg", "").replace("// ", "")


def test_pages_are_no_part_of_the_contract(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert not [path for path in paths if not path.startswith(("/v1/", "/healthz", "/readyz"))]


def test_the_example_of_the_overview_names_this_service(client: TestClient) -> None:
    assert "http://testserver/v1/plans" in client.get("/docs").text
