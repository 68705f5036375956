"""Constraints on the wire as the planner's."""

from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.constraints import BoundsDocument, ConstraintsDocument
from api.schemas.flat import FlatChoices
from planner.strategy import Recompute, RecomputeMode, ScheduleName


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


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        ({"schedule": "interleaved"}, {"schedule": ScheduleName.INTERLEAVED}),
        (
            {"schedule": {"name": "interleaved", "virtual_stages": 3}},
            {"schedule": ScheduleName.INTERLEAVED, "virtual_stages": 3},
        ),
        ({"recompute": "selective"}, {"recompute": RecomputeMode.SELECTIVE}),
        (
            {"recompute": {"mode": "selective", "modules": ["mlp"]}},
            {"recompute": Recompute(mode=RecomputeMode.SELECTIVE, modules=("mlp",))},
        ),
    ],
)
def test_objects_are_fixed_decision_by_decision(fixed: dict[str, Any], expected: dict[str, Any]) -> None:
    assert ConstraintsDocument.model_validate({"fixed": fixed}).to_constraints().fixed == expected


def test_a_forbidden_technique_is_fixed_to_being_without_it() -> None:
    document = ConstraintsDocument.model_validate(
        {"forbid": ["pipeline_parallel", "recompute", "sharding", "offload", "expert_parallel"]}
    )
    assert document.to_constraints().fixed == {
        "pipeline_parallel": 1,
        "recompute": RecomputeMode.NONE,
        "zero_stage": 0,
    }


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
        {"forbid": ["tensor_parallel"], "fixed": {"tensor_parallel": 8}},
        {"forbid": ["recompute"], "fixed": {"recompute": "full"}},
        {"allow": ["everything"]},
        {"memory_fraction": 0},
    ],
)
def test_what_contradicts_itself_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ConstraintsDocument.model_validate(document)
