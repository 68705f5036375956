"""A model in each of its forms."""

from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.model import ModelDocument
from planner.errors import InvalidRequest, UnknownName

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def test_the_depth_of_a_preset_may_be_another() -> None:
    workload = ModelDocument.model_validate({"preset": "llama-3-8b", "num_layers": 4}).to_workload()
    assert workload.count("decoder") == 4


def test_a_stack_of_lstm_layers_may_be_deeper() -> None:
    layers = [
        {"kind": "embedding", "vocabulary": 100, "hidden": 16},
        {"kind": "lstm", "inputs": 16, "hidden": 32},
        {"kind": "lstm", "inputs": 32, "hidden": 32, "count": 3},
        {"kind": "head", "vocabulary": 100, "hidden": 32},
    ]
    workload = ModelDocument.model_validate({"layers": layers, "num_layers": 6}).to_workload()
    assert workload.count("lstm") == 6


@pytest.mark.parametrize("preset", ["resnet-50", "efficientnet-b0", "dlrm-criteo-1tb"])
def test_a_model_whose_layers_differ_has_one_depth(preset: str) -> None:
    with pytest.raises(InvalidRequest, match=preset) as caught:
        ModelDocument.model_validate({"preset": preset, "num_layers": 7}).to_workload()
    assert caught.value.pointer == "/model/num_layers"


def test_a_configuration_is_a_model() -> None:
    assert ModelDocument.model_validate({"huggingface": LLAMA}).to_workload().count("decoder") == 2


def test_an_unknown_preset_gets_the_nearest_names() -> None:
    with pytest.raises(UnknownName) as caught:
        ModelDocument.model_validate({"preset": "lama-3-8b"}).to_workload()
    assert caught.value.pointer == "/model/preset"
    assert "llama-3-8b" in caught.value.nearest_legal


def test_a_key_of_a_configuration_that_is_absurd_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        ModelDocument.model_validate({"huggingface": {**LLAMA, "hidden_size": -1}}).to_workload()
    assert caught.value.pointer == "/model/huggingface/hidden_size"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"preset": "llama-3-8b", "huggingface": LLAMA},
        {"num_layers": 3},
        {"huggingface": {"hidden_size": float("inf")}},
        {"huggingface": {"model_type": "\ud800"}},
        {"layers": []},
    ],
)
def test_what_is_not_one_model_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ModelDocument.model_validate(document)
