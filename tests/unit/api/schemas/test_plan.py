"""The full form of a plan and its document say the same."""

from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from api.schemas.document import MAX_LAYERS
from api.schemas.plan import PlanDocument
from planner.strategy import TrainingPlan
from tests.unit.api.schemas.plans import training_plans

LAYERS = {"kind": "decoder", "first": 0, "count": 4}
STAGE: dict[str, Any] = {
    "stage": 0,
    "placement": [
        {"node_group": "a", "devices": [{"first": 0, "count": 8}], "data_parallel": 2, "tensor_parallel": 4}
    ],
    "chunks": [{"virtual_stage": 0, "layers": [LAYERS]}],
}


def plan(**changes: object) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "mesh": {"data_parallel": 2, "tensor_parallel": 4},
        "batch": {"micro_batch_size": 1, "num_micro_batches": 8},
        "stages": [STAGE],
    }
    return whole | changes


@given(plan=training_plans())
def test_a_plan_survives_its_document(plan: TrainingPlan) -> None:
    assert PlanDocument.from_plan(plan).to_plan() == plan


@given(plan=training_plans())
def test_a_document_survives_its_plan_and_its_json(plan: TrainingPlan) -> None:
    document = PlanDocument.from_plan(plan)
    assert PlanDocument.from_plan(document.to_plan()) == document
    assert PlanDocument.model_validate_json(document.model_dump_json()) == document


def test_what_is_left_out_has_its_default() -> None:
    read = PlanDocument.model_validate(plan())
    assert read.schedule.name == "1f1b"
    assert read.sharding.optimizer == 1
    assert read.stages[0].chunks[0].layers[0].recompute.mode == "none"
    assert read.stages[0].placement[0].context_parallel == 1


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"stages": []}, id="no stages"),
        pytest.param({"stages": [{**STAGE, "stage": 1}]}, id="stages that begin with 1"),
        pytest.param({"stages": [STAGE, {**STAGE, "stage": 1}]}, id="more stages than pipeline_parallel"),
        pytest.param({"stages": [{**STAGE, "chunks": []}]}, id="a stage without chunks"),
        pytest.param({"mesh": {"rank_order": ["tensor_parallel"]}}, id="a rank order that leaves axes out"),
        pytest.param({"mesh": {"rank_order": ["tensor_parallel"] * 4}}, id="a rank order that repeats"),
        pytest.param({"sharding": {"zero_stage": 1, "gradients": 2}}, id="more sharding than its stage"),
        pytest.param({"schedule": {"name": "zigzag"}}, id="an unknown schedule"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PlanDocument.model_validate(plan(**changes))


def test_more_layers_than_any_model_has_are_refused() -> None:
    many = [{**LAYERS, "count": MAX_LAYERS}] * 3
    stage = {**STAGE, "chunks": [{"virtual_stage": 0, "layers": many}]}
    with pytest.raises(ValidationError, match="layers at the most"):
        PlanDocument.model_validate(plan(stages=[stage]))
