"""The OpenAPI document: FastAPI's own, with problem documents wherever something may go wrong."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.schemas.problem import MEDIA_TYPE, ProblemDocument

REFERENCE: Final = "#/components/schemas/{model}"
PROBLEM: Final = "#/components/responses/Problem"
INVALID: Final = "422"
OUTPUT_SUFFIX: Final = "-Output"
"""What FastAPI adds to the name of a document that is read as well as written, for the written form."""
OWN_ERRORS: Final = ("HTTPValidationError", "ValidationError")
"""FastAPI's schemas of errors, which this service does not answer with."""

DESCRIPTION: Final = """\
How should this model be trained on these machines? Units are base units: seconds, bytes, FLOP, watts.
Each field is marked stable or experimental (`x-stability`). Unknown fields of a request are refused;
unknown fields of an answer are to be tolerated. What goes wrong is answered as `application/problem+json`
with the JSON pointer of the field at fault and the id of the request.
"""


def describe(app: FastAPI) -> None:
    """Make an application describe itself with the document of this module."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents it


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    components = document["components"]
    schemas = components["schemas"]
    for name in OWN_ERRORS:
        schemas.pop(name, None)
    _tolerate_unknown_output(schemas)
    schemas |= _problem_schemas()
    components["responses"] = {
        "Problem": {
            "description": "Something is wrong; the document says what",
            "content": {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(model=ProblemDocument.__name__)}}},
        }
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop(INVALID, None)
            operation["responses"]["default"] = {"$ref": PROBLEM}
    return document


def _tolerate_unknown_output(schemas: dict[str, Any]) -> None:
    """Let the written form of a document have fields that readers do not know."""
    for name, schema in schemas.items():
        if name.endswith(OUTPUT_SUFFIX):
            schema.pop("additionalProperties", None)


def _problem_schemas() -> dict[str, Any]:
    schema = ProblemDocument.model_json_schema(ref_template=REFERENCE, mode="serialization")
    return {**schema.pop("$defs"), ProblemDocument.__name__: schema}
