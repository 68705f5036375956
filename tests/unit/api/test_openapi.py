"""What is published stays as it is: the OpenAPI document, field by field."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from api.app import create_app
from api.schemas.problem import MEDIA_TYPE
from api.settings import Settings
from tests.unit.api.services import EVALUATION, REQUEST

PUBLISHED = Path(__file__).parents[3] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def document() -> Mapping[str, Any]:
    return create_app(Settings(database_url="sqlite://")).openapi()


def test_the_published_document_is_that_of_the_service(document: Mapping[str, Any]) -> None:
    # After a change that is meant: python -m scripts.write_openapi
    assert json.loads(PUBLISHED.read_text()) == json.loads(json.dumps(document))


def test_every_field_is_marked(document: Mapping[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        for field, description in schema.get("properties", {}).items():
            assert description["x-stability"] in {"stable", "experimental"}, f"{name}.{field}"


def test_input_refuses_unknown_fields_and_output_tolerates_them(document: Mapping[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["PlanRequestDocument"]["additionalProperties"] is False
    assert schemas["PlanDocument-Input"]["additionalProperties"] is False
    assert "additionalProperties" not in schemas["PlanDocument-Output"]
    assert "additionalProperties" not in schemas["ResultDocument"]


def test_every_operation_may_answer_with_a_problem(document: Mapping[str, Any]) -> None:
    problem = document["components"]["responses"]["Problem"]
    assert MEDIA_TYPE in problem["content"]
    for operation in _operations(document):
        assert operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}
        assert "422" not in operation["responses"]


@pytest.mark.parametrize(
    ("name", "request_document"),
    [("PlanRequestDocument", REQUEST), ("EvaluationRequestDocument", EVALUATION)],
)
def test_requests_are_valid_by_the_published_schema(
    document: Mapping[str, Any], name: str, request_document: Mapping[str, Any]
) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema.validate(request_document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**request_document, "modell": {}}, schema)


def _operations(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()
