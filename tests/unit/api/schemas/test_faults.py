"""Every fault names its field by a JSON pointer, and what would be legal."""

import copy
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from api.schemas.faults import MAX_FAULTS, faults_in, json_pointer
from api.schemas.problem import FaultDocument
from api.schemas.request import EvaluationRequestDocument, PlanRequestDocument

REQUEST: dict[str, Any] = {
    "model": {"preset": "llama-3-8b"},
    "cluster": {"preset": "h100-sxm", "num_devices": 8},
    "job": {"global_batch_size": 128, "sequence_length": 8192},
}
GROUP: dict[str, Any] = {"name": "a", "num_nodes": 2, "devices_per_node": 8, "device": "H100-SXM5-80GB"}
LEVEL: dict[str, Any] = {
    "name": "nvlink",
    "devices": 8,
    "bandwidth_bytes_per_second": 4.5e11,
    "latency_seconds": 1e-6,
}
NAN, INFINITY = float("nan"), float("inf")


def faults(document: object, *, schema: type[BaseModel] = PlanRequestDocument) -> list[FaultDocument]:
    with pytest.raises(ValidationError) as caught:
        schema.model_validate(document)
    return faults_in(caught.value, document=document, schema=schema)


def changed(place: str, value: object) -> dict[str, Any]:
    document = copy.deepcopy(REQUEST)
    here = document
    *outer, last = place.split("/")
    for step in outer:
        here = here.setdefault(step, {})
    here[last] = value
    return document


@pytest.mark.parametrize(
    ("place", "value", "nearest"),
    [
        ("job/global_batch_size", -1, (1,)),
        ("job/global_batch_size", 0, (1,)),
        ("job/global_batch_size", True, ()),
        ("job/global_batch_size", "128", (128,)),
        ("job/global_batch_size", "1e400", ()),
        ("job/global_batch_size", "many", ()),
        ("constraints/memory_fraction", "0.9", (0.9,)),
        ("model", "llama-3-8b", ({"preset": "llama-3-8b"},)),
        ("cluster", "h100-sxm:64", ({"preset": "h100-sxm", "num_devices": 64},)),
        ("cluster", "h100-sxm", ()),
        ("job/trainable", "lora", ({"kind": "lora"},)),
        ("job/global_batch_size", 128.5, ()),
        ("job/global_batch_size", NAN, ()),
        ("job/global_batch_size", INFINITY, ()),
        ("job/global_batch_size", 10**10, (10**9,)),
        ("job/sequence_length", 10**9, (10**8,)),
        ("job/precision", "bf61", ("bf16", "fp16")),
        ("job/optimizer", "adamv", ("adam", "adamw", "adam_8bit")),
        ("job/compile", 1, ()),
        ("job/trainable/rank", 16, ()),
        ("cluster/num_devices", 0, (1,)),
        ("cluster/num_devices", None, ()),
        ("cluster/num_devices", 10**8, (10**7,)),
        ("cluster", "h100", ()),
        ("model", {}, ()),
        ("model", {"preset": "a", "layers": []}, ()),
        ("model/huggingface", {"hidden_size": NAN}, ()),
        ("solver/time_limit_seconds", 0, ()),
        ("solver/time_limit_seconds", NAN, ()),
        ("solver/relative_gap", 2, (1,)),
        ("constraints/memory_fraction", 1.5, (1,)),
        ("constraints/bounds/tensor_parallel", [8, 1], ([1, 8],)),
        ("constraints/forbid", "offload", ()),
    ],
)
def test_the_pointer_is_that_of_the_field(place: str, value: object, nearest: tuple[object, ...]) -> None:
    if place == "model/huggingface":
        document = changed("model", {"huggingface": value})
    else:
        document = changed(place, value)
    first = faults(document)[0]
    assert first.pointer in {f"/{place}", f"/{place}/layers"}
    assert first.nearest_legal == nearest


@pytest.mark.parametrize(
    ("place", "nearest"),
    [
        ("job/global_batch_siz", "global_batch_size"),
        ("job/frame-work", "framework"),
        ("modell", "model"),
        ("constraints/fixed/tensor_paralel", "tensor_parallel"),
        ("constraints/bounds/pipline_parallel", "pipeline_parallel"),
    ],
)
def test_an_unknown_field_gets_the_nearest_one(place: str, nearest: str) -> None:
    (fault,) = faults(changed(place, 1))
    assert fault.pointer == f"/{place}"
    assert fault.nearest_legal[0] == nearest


@pytest.mark.parametrize(
    ("plan", "pointer"),
    [
        ({"recompute": "ful"}, "/plan/recompute"),
        ({"recompute": {"mode": "ful"}}, "/plan/recompute/mode"),
        ({"schedule": "zigzag"}, "/plan/schedule"),
        ({"offload": {"optimizer": 1.5}}, "/plan/offload/optimizer"),
        ({"offload": {"optimizr": 0.5}}, "/plan/offload/optimizr"),
        ({"sharding": {"zero_stage": 1, "parameters": 4}}, "/plan/sharding/parameters"),
        ({"schedule": {"virtual_stages": 2}, "virtual_stages": 3}, "/plan/virtual_stages"),
        (
            {"stages": [{"stage": 0, "placement": []}], "mesh": {}, "batch": {}},
            "/plan/batch/micro_batch_size",
        ),
        (5, "/plan"),
    ],
)
def test_pointers_into_a_plan_name_no_form_of_it(plan: object, pointer: str) -> None:
    assert faults({**REQUEST, "plan": plan}, schema=EvaluationRequestDocument)[0].pointer == pointer


@pytest.mark.parametrize(
    ("group", "pointer"),
    [
        ({**GROUP, "levels": [LEVEL]}, "/levels"),
        ({**GROUP, "levels": [LEVEL, {**LEVEL, "devices": 12}]}, "/levels"),
        ({**GROUP, "levels": [{**LEVEL, "topology": "start"}]}, "/levels/0/topology"),
        ({**GROUP, "levels": [{**LEVEL, "latency_seconds": -1}]}, "/levels/0/latency_seconds"),
        ({**GROUP, "device": {"name": "mine"}}, "/device/memory_bytes"),
        ({**GROUP, "device": 5}, "/device"),
    ],
)
def test_pointers_into_node_groups_have_their_number(group: dict[str, Any], pointer: str) -> None:
    document = {**REQUEST, "cluster": {"node_groups": [group]}}
    assert faults(document)[0].pointer == f"/cluster/node_groups/0{pointer}"


def test_a_missing_field_is_named() -> None:
    found = faults({"model": {"preset": "a"}})
    assert [(fault.pointer, fault.detail) for fault in found] == [
        ("/cluster", "is missing"),
        ("/job", "is missing"),
    ]


def test_a_misspelt_field_comes_before_the_one_that_is_missing_for_it() -> None:
    found = faults({**REQUEST, "job": {"global_batch_sise": 128}})
    assert [fault.pointer for fault in found] == ["/job/global_batch_sise", "/job/global_batch_size"]


def test_a_kind_of_layer_that_nothing_has_gets_the_nearest() -> None:
    (fault,) = faults(changed("model", {"layers": [{"kind": "embeding"}]}))
    assert fault.pointer == "/model/layers/0/kind"
    assert fault.nearest_legal == ("embedding",)


def test_a_list_is_not_called_too_short_for_its_faulty_items() -> None:
    found = faults(changed("model", {"layers": [{"kind": "norm"}]}))
    assert [fault.pointer for fault in found] == ["/model/layers/0/hidden"]


def test_what_is_no_object_has_the_empty_pointer() -> None:
    assert faults([1])[0].pointer == ""


def test_a_name_with_braces_is_told_as_it_is() -> None:
    assert "{x}" in faults(changed("job/precision", "{x}"))[0].detail


def test_a_thousand_faults_are_not_all_told() -> None:
    document = {**REQUEST, "job": {f"field{number}": 1 for number in range(1000)}}
    assert len(faults(document)) == MAX_FAULTS


def test_slashes_and_tildes_are_escaped_in_pointers() -> None:
    assert json_pointer(["a/b", "c~d", 0]) == "/a~1b/c~0d/0"
