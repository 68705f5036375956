"""Constraints on the wire as the planner's."""

from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.constraints import BoundsDocument, ConstraintsDocument
from api.schemas.flat import FlatChoices


def test_what_is_said_arrives() -> None:
    document = ConstraintsDocument.model_validate(
        {
            "fixed": {"tensor_parallel": 8},
            "bounds": {"pipeline_parallel": [1, 8]},
            "forbid": ["offload"],
            "allow": ["stale_updates"],
            "memory_fraction": 0.9,
        }
    )
    constraints = document.to_constraints()
    assert constraints.fixed == {"tensor_parallel": 8}
    assert constraints.bounds == {"pipeline_parallel": (1, 8)}
    assert constraints.forbid == ("offload",)
    assert constraints.allow == ("stale_updates",)
    assert constraints.memory_fraction == 0.9


def test_bounds_are_words_of_the_plan() -> None:
    assert BoundsDocument.model_fields.keys() <= FlatChoices.model_fields.keys()


@pytest.mark.parametrize(
    "document",
    [
        {"bounds": {"tensor_parallel": [8, 1]}},
        {"bounds": {"tensor_parallel": [1]}},
        {"bounds": {"schedule": [1, 2]}},
        {"fixed": {"tensor_parallel": 16}, "bounds": {"tensor_parallel": [1, 8]}},
        {"forbid": ["sleep"]},
        {"allow": ["everything"]},
        {"memory_fraction": 0},
    ],
)
def test_what_contradicts_itself_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ConstraintsDocument.model_validate(document)
