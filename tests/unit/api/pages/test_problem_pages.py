from http import HTTPStatus

import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from api.pages.problem_pages import ProblemPagesMiddleware
from api.problems import UnexpectedErrorMiddleware, add_problem_handlers
from planner.errors import UnknownName

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()

    @app.get("/fine")
    def fine() -> Response:
        return PlainTextResponse("fine")

    @app.get("/busy")
    def busy() -> Response:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, HOSTILE, headers={"Retry-After": "5"})

    @app.get("/unknown")
    def unknown() -> Response:
        raise UnknownName("no model of that name", pointer="/model/preset", nearest_legal=("llama-3-8b",))

    @app.get("/broken")
    def broken() -> Response:
        raise RuntimeError(HOSTILE)

    @app.get("/v1/plans")
    def plans() -> Response:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no plan")

    add_problem_handlers(app)
    app.add_middleware(UnexpectedErrorMiddleware)
    app.add_middleware(ProblemPagesMiddleware)
    return TestClient(app)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/nowhere", HTTPStatus.NOT_FOUND, "There is no /nowhere."),
        ("/busy", HTTPStatus.SERVICE_UNAVAILABLE, "&lt;script&gt;"),
        ("/unknown", HTTPStatus.UNPROCESSABLE_ENTITY, "Nearest: llama-3-8b"),
        ("/broken", HTTPStatus.INTERNAL_SERVER_ERROR, "omething went wrong here"),
    ],
)
def test_a_browser_gets_a_page(client: TestClient, path: str, status: HTTPStatus, text: str) -> None:
    response = client.get(path, headers=BROWSER)
    assert response.status_code == status
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert text in response.text
    assert HOSTILE not in response.text


def test_a_page_keeps_what_the_problem_said_in_its_headers(client: TestClient) -> None:
    assert client.get("/busy", headers=BROWSER).headers["retry-after"] == "5"


def test_a_program_gets_the_problem_document(client: TestClient) -> None:
    response = client.get("/nowhere", headers={"Accept": "application/json"})
    assert response.headers["content-type"].startswith("application/problem+json")


def test_the_programs_side_answers_browsers_with_documents_too(client: TestClient) -> None:
    response = client.get("/v1/plans", headers=BROWSER)
    assert response.headers["content-type"].startswith("application/problem+json")


def test_what_is_no_problem_passes(client: TestClient) -> None:
    assert client.get("/fine", headers=BROWSER).text == "fine"
