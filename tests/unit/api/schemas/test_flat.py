"""The flat words of a plan: short forms of objects, defaults, and what contradicts itself."""

from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from api.schemas.flat import FlatChoices, ShortPlanDocument
from planner.strategy import Recompute, RecomputeMode, Schedule, ScheduleName, Sharding, ShortPlan, ZeroStage
from tests.unit.api.schemas.plans import short_plans


@given(plan=short_plans)
def test_a_short_plan_survives_its_document(plan: ShortPlan) -> None:
    assert ShortPlanDocument.from_plan(plan).to_plan() == plan


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, ShortPlan()),
        ({"tensor_parallel": 8, "data_parallel": None}, ShortPlan(tensor_parallel=8)),
        ({"recompute": "full"}, ShortPlan(recompute=Recompute(mode=RecomputeMode.FULL))),
        (
            {"recompute": {"mode": "selective", "modules": ["core_attention"]}},
            ShortPlan(recompute=Recompute(mode=RecomputeMode.SELECTIVE, modules=("core_attention",))),
        ),
        ({"schedule": "gpipe"}, ShortPlan(schedule=Schedule(name=ScheduleName.GPIPE))),
        (
            {"schedule": "interleaved", "virtual_stages": 5},
            ShortPlan(virtual_stages=5, schedule=Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=5)),
        ),
        (
            {"schedule": {"name": "interleaved", "virtual_stages": 3}},
            ShortPlan(virtual_stages=3, schedule=Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=3)),
        ),
        (
            {"sharding": {"zero_stage": 1, "optimizer": 8}},
            ShortPlan(zero_stage=1, sharding=Sharding(zero_stage=ZeroStage.OPTIMIZER, optimizer=8)),
        ),
        ({"offload": {"optimizer": 0.5}}, ShortPlan(offload={"optimizer": 0.5})),
        ({"offload": {"optimizer": {"cpu": 0.5}}}, ShortPlan(offload={"optimizer": 0.5})),
        ({"layers_per_stage": [0, 16, 16]}, ShortPlan(layers_per_stage=(0, 16, 16))),
        ({"num_micro_batches": 4}, ShortPlan(extra={"num_micro_batches": 4})),
        (
            {"context_parallel_scheme": "all_to_all"},
            ShortPlan(extra={"context_parallel_scheme": "all_to_all"}),
        ),
    ],
)
def test_flat_words_mean_what_they_say(words: dict[str, Any], expected: ShortPlan) -> None:
    read = ShortPlanDocument.model_validate(words)
    assert read.to_plan() == expected
    assert ShortPlanDocument.model_validate(read.said()).to_plan() == expected


@pytest.mark.parametrize(
    "words",
    [
        {"schedule": {"name": "interleaved", "virtual_stages": 2}, "virtual_stages": 3},
        {"sharding": {"zero_stage": 1}, "zero_stage": 3},
    ],
)
def test_a_word_that_is_said_twice_and_differently_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="here and"):
        ShortPlanDocument.model_validate(words)


def test_what_is_not_chosen_is_not_fixed() -> None:
    assert FlatChoices.model_validate({"tensor_parallel": 8, "zero_stage": None}).chosen() == {
        "tensor_parallel": 8
    }
