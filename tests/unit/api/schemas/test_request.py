"""Requests, normalised."""

from typing import Any

import pytest

from api.schemas.plan import PlanDocument
from api.schemas.request import EvaluationRequestDocument, PlanRequestDocument
from tests.unit.api.schemas.test_plan import plan

REQUEST: dict[str, Any] = {
    "model": {"preset": "llama-3-8b"},
    "cluster": {"preset": "h100-sxm", "num_devices": 8},
    "job": {"global_batch_size": 128, "sequence_length": 8192},
}
CONSTRAINED = {
    "fixed": {"schedule": "interleaved", "virtual_stages": 5},
    "bounds": {"tensor_parallel": [1, 8]},
    "forbid": ["offload"],
}


@pytest.mark.parametrize(
    "document",
    [
        REQUEST,
        {**REQUEST, "constraints": CONSTRAINED, "profiles": ["h100-sxm/published"]},
        {**REQUEST, "solver": {"time_limit_seconds": 5, "relative_gap": 0.01}},
    ],
)
def test_a_normalised_request_is_the_same_request(document: dict[str, Any]) -> None:
    request = PlanRequestDocument.model_validate(document)
    normalised = request.normalised()
    read = PlanRequestDocument.model_validate(normalised)
    assert read.normalised() == normalised
    assert read.constraints.to_constraints() == request.constraints.to_constraints()
    assert read.job.attention_or_default() == request.job.attention_or_default()
    assert read.job.model_copy(update={"attention": request.job.attention}) == request.job


@pytest.mark.parametrize(
    ("job", "attention"),
    [
        ({}, "flash"),
        ({"precision": "fp16"}, "unfused"),
        ({"precision": "fp16", "framework": "pytorch"}, "flash"),
        ({"precision": "fp16", "attention": "flash"}, "flash"),
        ({"attention": "eager"}, "unfused"),
        ({"attention": "sdpa"}, "flash"),
    ],
)
def test_attention_runs_as_the_job_or_its_framework_says(job: dict[str, Any], attention: str) -> None:
    document = {**REQUEST, "job": {**REQUEST["job"], **job}}
    assert PlanRequestDocument.model_validate(document).normalised()["job"]["attention"] == attention


@pytest.mark.parametrize(
    "given",
    [
        {"tensor_parallel": 8, "recompute": "full", "schedule": "interleaved", "virtual_stages": 4},
        {"offload": {"optimizer": 0.5}},
        plan(),
    ],
)
def test_a_normalised_evaluation_is_the_same_evaluation(given: dict[str, Any]) -> None:
    request = EvaluationRequestDocument.model_validate({**REQUEST, "plan": given})
    read = EvaluationRequestDocument.model_validate(request.normalised())
    assert read.plan.to_plan() == request.plan.to_plan()
    assert read.normalised() == request.normalised()


def test_defaults_are_filled_in() -> None:
    normalised = PlanRequestDocument.model_validate(REQUEST).normalised()
    assert normalised["job"]["framework"] == "megatron-core"
    assert normalised["objective"] == {"minimize": "step_time", "deadline_seconds": None, "tokens": None}
    assert normalised["solver"] == {
        "time_limit_seconds": 30.0,
        "relative_gap": 0.0,
        "explain": False,
        "sensitivity": False,
    }
    assert normalised["model"] == {"preset": "llama-3-8b"}


def test_a_plan_with_stages_is_the_full_form() -> None:
    request = EvaluationRequestDocument.model_validate({**REQUEST, "plan": plan()})
    assert isinstance(request.plan, PlanDocument)
