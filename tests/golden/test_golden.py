"""Requests and results as the contract has them, kept in files: what changes them is seen.

After a change that is meant: python -m scripts.write_golden
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from api.workspace import Workspace, migrated_workspace
from tests.golden.documents import NAMES, answer_to, request_of, result_path, shape

PUBLISHED = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
FROZEN = ("state", "status", "request", "violations")
"""Parts of a result that follow from the request alone, whatever the predictions are."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("golden")
    workspace = migrated_workspace(f"sqlite:///{folder / 'meshplan.sqlite3'}")
    yield workspace
    workspace.close()


def schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": PUBLISHED["components"]}


def kept(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result_path(name).read_text())
    return document


@pytest.mark.parametrize("name", NAMES)
def test_requests_are_valid_by_the_published_schema_unless_they_are_refused(name: str) -> None:
    document = request_of(name)
    published = schema("EvaluationRequestDocument" if "plan" in document else "PlanRequestDocument")
    if name == "refused-unknown-field":
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, published)
    else:
        jsonschema.validate(document, published)


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_valid_by_the_published_schema(name: str) -> None:
    is_problem = name.startswith("refused")
    jsonschema.validate(kept(name), schema("ProblemDocument" if is_problem else "ResultDocument"))


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("refused")])
def test_a_refused_request_gets_the_same_problem(name: str, workspace: Workspace) -> None:
    assert answer_to(name, library=workspace.library) == kept(name)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("refused")])
def test_a_request_gets_an_answer_of_the_same_shape(name: str, workspace: Workspace) -> None:
    document, expected = answer_to(name, library=workspace.library), kept(name)
    assert {part: document[part] for part in FROZEN} == {part: expected[part] for part in FROZEN}
    assert _outer(shape(document)) == _outer(shape(expected))


def _outer(whole: object) -> object:
    """Return a shape without the frozen parts, and lists without their entries, which plans differ in."""
    if isinstance(whole, dict):
        return {key: _outer(inner) for key, inner in whole.items() if key not in FROZEN}
    return "list" if isinstance(whole, list) else whole
