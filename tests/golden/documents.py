"""The requests of this folder, their answers, and what of an answer is frozen."""

import json
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError

from api.jobs.answering import answer
from api.profile_library import ProfileLibrary
from api.schemas.faults import faults_in
from api.schemas.problem import ProblemDocument
from api.schemas.request import EvaluationRequestDocument, PlanRequestDocument
from planner.errors import InvalidRequest

FOLDER: Final = Path(__file__).parent
NAMES: Final = tuple(sorted(path.stem for path in (FOLDER / "requests").glob("*.json")))
NO_ID: Final = UUID(int=0)
FREE_KEYS: Final = frozenset({"dimensions", "change"})
"""Objects whose keys are no fields."""


def request_of(name: str) -> Any:  # noqa: ANN401 - any JSON
    """Return a request of the folder."""
    return json.loads((FOLDER / "requests" / f"{name}.json").read_text())


def result_path(name: str) -> Path:
    """Return where the answer to a request is kept."""
    return FOLDER / "results" / f"{name}.json"


def answer_to(name: str, *, library: ProfileLibrary) -> dict[str, Any]:
    """Return the result document of a request, or its problem document."""
    document = request_of(name)
    schema = EvaluationRequestDocument if "plan" in document else PlanRequestDocument
    try:
        request = schema.model_validate(document)
        result = answer(request, result_id=NO_ID, library=library)
    except ValidationError as error:
        faults = faults_in(error, document=document, schema=schema)
        return ProblemDocument.of_faults(faults).model_dump(mode="json")
    except InvalidRequest as error:
        return ProblemDocument.of_invalid_request(error).model_dump(mode="json")
    return result.model_dump(mode="json")


def shape(value: object) -> object:
    """Return the fields and kinds of values of a document, without the values.

    The entries of a list count once for each shape that they have; null stands for any shape.
    """
    match value:
        case dict():
            return {key: "any" if key in FREE_KEYS else shape(inner) for key, inner in value.items()}
        case list():
            return sorted({json.dumps(shape(entry), sort_keys=True) for entry in value})
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case None:
            return None
    return "text"
