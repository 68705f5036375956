from http import HTTPStatus

from api.pages.lists import plans_page
from api.pages.rendering import page_response
from api.version import VERSION


def test_a_page_says_its_version_and_marks_where_one_is() -> None:
    html = bytes(page_response("list.html", here="/plans", page=plans_page([])).body).decode()
    assert f"meshplan {VERSION}" in html
    assert '<a href="/plans" aria-current="page">Plans</a>' in html
    assert html.count("aria-current") == 1


def test_a_page_lets_nothing_in_from_elsewhere() -> None:
    response = page_response("list.html", here="/plans", page=plans_page([]))
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"


def test_half_characters_do_not_break_a_page() -> None:
    problem: dict[str, object] = {
        "title": "Not Found",
        "detail": "no \ud800",
        "nearest_legal": [],
        "request_id": None,
        "status": 404,
    }
    response = page_response("problem.html", here="", status=HTTPStatus.NOT_FOUND, problem=problem)
    assert b"No ?." in response.body
