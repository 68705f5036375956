"""From a request to its answer: names resolved, the planner asked, profiles named."""

import copy
from typing import Any
from uuid import UUID, uuid4

import pytest

from api.jobs.answering import answer, read_request, resolve, timeline
from api.schemas.request import EvaluationRequestDocument, PlanRequestDocument
from api.schemas.result import ResultDocument
from api.workspace import Workspace
from planner.errors import InvalidRequest, UnknownName
from planner.plan import Status
from tests.unit.api.services import EVALUATION, REQUEST


def evaluate(workspace: Workspace, **changes: Any) -> ResultDocument:  # noqa: ANN401 - any field
    document = EvaluationRequestDocument.model_validate({**EVALUATION, **changes})
    return answer(document, result_id=uuid4(), library=workspace.library)


def test_an_evaluation_is_answered_with_its_prediction(workspace: Workspace) -> None:
    result = evaluate(workspace)
    assert result.status is Status.FITS
    assert result.prediction is not None
    assert result.prediction.step_time_seconds > 0
    assert result.request["job"]["framework"] == "megatron-core"


def test_a_result_names_profiles_as_they_can_be_looked_up(workspace: Workspace) -> None:
    (used,) = evaluate(workspace).profiles
    stored = {summary.name: summary.digest for summary in workspace.profiles.summaries()}
    assert (used.name, used.digest) == ("h100-sxm/published", stored["h100-sxm/published"])


def test_the_plan_of_a_result_gives_the_same_prediction(workspace: Workspace) -> None:
    first = evaluate(workspace)
    assert first.plan is not None
    again = evaluate(workspace, plan=first.plan.model_dump(mode="json"))
    assert again.plan == first.plan
    assert again.prediction == first.prediction


def test_a_plan_beside_a_reference_gives_the_same_prediction(workspace: Workspace) -> None:
    job = {**EVALUATION["job"], "loss": "dpo"}
    first = evaluate(workspace, job=job)
    assert first.plan is not None
    listed = [layers for stage in first.plan.stages for chunk in stage.chunks for layers in chunk.layers]
    assert {layers.of for layers in listed} == {None, "reference"}
    again = evaluate(workspace, job=job, plan=first.plan.model_dump(mode="json"))
    assert again.prediction == first.prediction


def test_an_answer_says_the_rank_of_adapters_that_have_none(workspace: Workspace) -> None:
    result = evaluate(workspace, job={**EVALUATION["job"], "trainable": {"kind": "lora"}})
    assert result.request["job"]["trainable"]["rank"] == 16
    assert evaluate(workspace).request["job"]["trainable"]["rank"] is None


def test_what_a_framework_does_not_train_so_is_warned_of(workspace: Workspace) -> None:
    trainable = {"kind": "lora", "base_dtype": "nf4"}
    job = {
        **EVALUATION["job"],
        "framework": "nanotron",
        "trainable": trainable,
        "master_weight_dtype": "bf16",
    }
    warnings = " ".join(evaluate(workspace, job=job).warnings)
    for words in ("low-rank adapters", "nf4", "master_weight_dtype"):
        assert words in warnings


@pytest.mark.parametrize(
    ("change", "pointer", "nearest"),
    [
        ({"trainable": {"frozen": ["decodr"]}}, "/job/trainable/frozen/0", "decoder"),
        ({"trainable": {"kind": "lora", "targets": ["k_prj"]}}, "/job/trainable/targets/0", "k_proj"),
        ({"loss": "dpo", "reference_model": "llama-3-8"}, "/job/reference_model", "llama-3-8b"),
        ({"reference_model": "llama-3-8b"}, "/job/reference_model", None),
    ],
)
def test_what_cannot_be_trained_is_refused_before_it_is_planned(
    workspace: Workspace, change: dict[str, Any], pointer: str, nearest: object
) -> None:
    document = PlanRequestDocument.model_validate({**REQUEST, "job": {**REQUEST["job"], **change}})
    with pytest.raises(InvalidRequest) as caught:
        resolve(document, library=workspace.library)
    assert caught.value.pointer == pointer
    assert caught.value.nearest_legal[0] == nearest


def test_an_illegal_plan_is_answered_with_its_rules(workspace: Workspace) -> None:
    result = evaluate(workspace, plan={"tensor_parallel": 5})
    assert result.status is Status.ILLEGAL
    assert result.prediction is None
    assert result.violations[0].pointer == "/plan/tensor_parallel"
    assert result.violations[0].nearest_legal


def test_the_rules_that_a_full_plan_breaks_point_into_it(workspace: Workspace) -> None:
    plan = evaluate(workspace).plan
    assert plan is not None
    document = plan.model_dump(mode="json")
    document["batch"]["num_micro_batches"] = 3
    result = evaluate(workspace, plan=document)
    assert result.status is Status.ILLEGAL
    assert result.violations[0].pointer == "/plan/batch/micro_batch_size"


def test_the_normalised_request_of_a_result_gives_the_same_answer(workspace: Workspace) -> None:
    first = evaluate(workspace)
    document = read_request(first.request)
    again = answer(document, result_id=first.id, library=workspace.library)
    assert again == first


def test_a_step_of_an_evaluated_plan_can_be_drawn(workspace: Workspace) -> None:
    result = evaluate(workspace)
    events = timeline(read_request(result.request), result, library=workspace.library)
    assert {event.operation for event in events} >= {"forward", "backward"}


def test_a_result_without_a_plan_cannot_be_drawn(workspace: Workspace) -> None:
    result = ResultDocument(
        id=UUID(int=0), version="1", request=dict(EVALUATION), state="done", status=Status.ILLEGAL
    )
    with pytest.raises(InvalidRequest):
        timeline(EvaluationRequestDocument.model_validate(EVALUATION), result, library=workspace.library)


def test_a_step_of_too_many_passes_is_not_drawn(workspace: Workspace) -> None:
    result = evaluate(workspace)
    assert result.plan is not None
    batch = result.plan.batch.model_copy(update={"num_micro_batches": 10**6})
    long = result.model_copy(update={"plan": result.plan.model_copy(update={"batch": batch})})
    with pytest.raises(InvalidRequest) as caught:
        timeline(read_request(result.request), long, library=workspace.library)
    assert caught.value.pointer == "/plan/batch/num_micro_batches"


def test_profiles_are_those_of_the_device_unless_named(workspace: Workspace) -> None:
    document = PlanRequestDocument.model_validate(REQUEST)
    question = resolve(document, library=workspace.library)
    assert {profile.device for profile in question.request.profiles} == {"H100-SXM5-80GB"}
    named = PlanRequestDocument.model_validate({**REQUEST, "profiles": ["h200-sxm/published"]})
    question = resolve(named, library=workspace.library)
    assert [profile.name for profile in question.request.profiles] == ["h200-sxm/published"]


def test_relatives_speak_for_a_device_that_nobody_measured(workspace: Workspace) -> None:
    group = {
        "name": "a",
        "num_nodes": 1,
        "devices_per_node": 1,
        "device": "GTX-1650-4GB",
    }
    request = {**REQUEST, "cluster": {"node_groups": [group]}}
    question = resolve(PlanRequestDocument.model_validate(request), library=workspace.library)
    devices = {profile.device for profile in question.request.profiles}
    assert devices
    assert "GTX-1650-4GB" not in devices


@pytest.mark.parametrize("preset", ["local", "h100-sxn"])
def test_an_unknown_cluster_is_refused_by_name(workspace: Workspace, preset: str) -> None:
    request = copy.deepcopy(dict(REQUEST)) | {"cluster": {"preset": preset, "num_devices": 2}}
    with pytest.raises(UnknownName) as caught:
        resolve(PlanRequestDocument.model_validate(request), library=workspace.library)
    assert caught.value.pointer == "/cluster/preset"
    assert ("meshplan profile" in caught.value.message) == (preset == "local")


def test_a_precision_that_the_device_lacks_is_refused_with_those_it_has(workspace: Workspace) -> None:
    job = {"global_batch_size": 16, "sequence_length": 1024, "precision": "nvfp4"}
    with pytest.raises(InvalidRequest) as caught:
        evaluate(workspace, job=job)
    assert caught.value.pointer == "/job/precision"
    assert "bf16" in caught.value.nearest_legal


JOINED = {"preset": "a100-h100-sxm", "num_devices": 4}


def test_stages_on_two_generations_are_priced_with_the_measurements_of_both(workspace: Workspace) -> None:
    first = evaluate(workspace, cluster=JOINED, plan={"tensor_parallel": 2, "pipeline_parallel": 2})
    assert {profile.name for profile in first.profiles} >= {"a100-sxm-80gb/published", "h100-sxm/published"}
    assert first.prediction is not None
    assert [stage.node_group for stage in first.prediction.memory] == ["a100-sxm-80gb", "h100-sxm"]
    again = answer(read_request(first.request), result_id=uuid4(), library=workspace.library)
    assert again.prediction == first.prediction


def test_a_search_on_two_generations_needs_one_of_them(workspace: Workspace) -> None:
    def plan(fixed: dict[str, str]) -> ResultDocument:
        request = {**REQUEST, "cluster": JOINED, "constraints": {"fixed": fixed}}
        document = PlanRequestDocument.model_validate(request)
        return answer(document, result_id=uuid4(), library=workspace.library)

    with pytest.raises(InvalidRequest) as caught:
        plan({})
    assert caught.value.nearest_legal == ("a100-sxm-80gb", "h100-sxm")
    picked = plan({"node_group": "h100-sxm"})
    assert picked.plan is not None
    assert {place.node_group for stage in picked.plan.stages for place in stage.placement} == {"h100-sxm"}
    assert picked.request["constraints"]["fixed"] == {"node_group": "h100-sxm"}


def test_a_precision_that_one_of_the_groups_lacks_is_refused(workspace: Workspace) -> None:
    levels = [{"name": "nvlink", "devices": 2, "bandwidth_bytes_per_second": 1e11, "latency_seconds": 2e-6}]
    groups = [
        {"name": name, "num_nodes": 1, "devices_per_node": 2, "device": device, "levels": levels}
        for name, device in (("old", "V100-SXM2-32GB"), ("new", "H100-SXM5-80GB"))
    ]
    link = {"groups": ["old", "new"], "bandwidth_bytes_per_second": 1e10, "latency_seconds": 1e-5}
    cluster = {"node_groups": groups, "between_groups": [link]}
    with pytest.raises(InvalidRequest) as caught:
        evaluate(workspace, cluster=cluster, plan={"tensor_parallel": 2, "pipeline_parallel": 2})
    assert caught.value.pointer == "/job/precision"
    assert "fp16" in caught.value.nearest_legal
    assert "bf16" not in caught.value.nearest_legal
