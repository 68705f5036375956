import json
from collections.abc import Mapping
from typing import Any

import pytest

from api.pages.examples import EXAMPLES
from api.pages.form_fields import OWN, PRESET, Verb
from api.pages.form_request import form_request
from api.pages.form_values import FormValues, values_of
from api.pages.http_request import without_defaults
from tests.unit.api.pages.documents import evaluated, plan, request


def _group(name: str) -> dict[str, Any]:
    nvlink = {
        "name": "nvlink",
        "devices": 8,
        "bandwidth_bytes_per_second": 4.5e11,
        "latency_seconds": 2e-6,
    }
    return {
        "name": name,
        "num_nodes": 1,
        "devices_per_node": 8,
        "device": "H100-SXM5-80GB",
        "levels": [nvlink],
    }


REQUESTS: dict[str, tuple[Mapping[str, Any], Verb]] = {
    "defaults": (request(), Verb.PLAN),
    "constrained": (
        request()
        | {
            "constraints": {
                "fixed": {"tensor_parallel": 8, "sequence_parallel": True, "recompute": {"mode": "full"}},
                "bounds": {"pipeline_parallel": [1, 8]},
                "forbid": ["offload", "context_parallel"],
                "memory_fraction": 0.9,
            },
            "solver": {"time_limit_seconds": 5, "relative_gap": 0.01},
        },
        Verb.PLAN,
    ),
    "recomputation by module": (
        request()
        | {"constraints": {"fixed": {"recompute": {"mode": "selective", "modules": ["core_attention"]}}}},
        Verb.PLAN,
    ),
    "own model and machines": (
        request()
        | {
            "model": {"huggingface": {"model_type": "llama", "hidden_size": 64}},
            "cluster": {"node_groups": [_group("a")]},
        },
        Verb.PLAN,
    ),
    "joined machines": (
        request()
        | {
            "cluster": {
                "node_groups": [_group("a"), _group("b")],
                "between_groups": [
                    {"groups": ["a", "b"], "bandwidth_bytes_per_second": 3e9, "latency_seconds": 3e-5}
                ],
            },
            "constraints": {"fixed": {"node_group": "a"}},
        },
        Verb.PLAN,
    ),
    "adapters": (
        request()
        | {
            "job": request()["job"]
            | {
                "images_per_sample": 2,
                "trainable": {
                    "kind": "lora",
                    "rank": 4,
                    "targets": ["q_proj", "v_proj"],
                    "frozen": ["vision", "two words"],
                },
            }
        },
        Verb.PLAN,
    ),
    "short evaluation": (evaluated()["request"], Verb.EVALUATE),
    "whole evaluation": (evaluated()["request"] | {"plan": plan()}, Verb.EVALUATE),
    **{name: (example.request, Verb.PLAN) for name, example in EXAMPLES.items()},
}


@pytest.mark.parametrize(("document", "verb"), REQUESTS.values(), ids=list(REQUESTS))
def test_a_request_survives_the_form(document: Mapping[str, Any], verb: Verb) -> None:
    short = without_defaults(document, is_evaluation=verb is Verb.EVALUATE)
    said = form_request(values_of(short, verb=verb), verb=verb)
    assert not said.unreadable
    assert without_defaults(said.document, is_evaluation=verb is Verb.EVALUATE) == short


def test_what_the_form_has_no_field_for_stands_beside_it() -> None:
    short = without_defaults(REQUESTS["constrained"][0], is_evaluation=False)
    values = values_of(short, verb=Verb.PLAN)
    assert json.loads(values.text("more")) == {
        "constraints": {"bounds": {"pipeline_parallel": [1, 8]}},
        "solver": {"relative_gap": 0.01},
    }
    assert (values.text("tensor_parallel"), values.text("sequence_parallel"), values.text("recompute")) == (
        "8",
        "yes",
        "full",
    )
    assert values.forbid == ("offload", "context_parallel")


def test_joined_machines_stand_in_one_field() -> None:
    short = without_defaults(REQUESTS["joined machines"][0], is_evaluation=False)
    values = values_of(short, verb=Verb.PLAN)
    assert json.loads(values.text("node_groups")) == short["cluster"]
    assert (values.text("more"), values.text("node_group")) == ("", "a")


def test_names_that_a_list_cannot_hold_stay_a_document() -> None:
    short = without_defaults(REQUESTS["adapters"][0], is_evaluation=False)
    values = values_of(short, verb=Verb.PLAN)
    assert values.text("lora_targets") == "q_proj, v_proj"
    assert json.loads(values.text("more")) == {"job": {"trainable": {"frozen": ["vision", "two words"]}}}


def test_the_request_itself_is_left_as_it_was() -> None:
    before = request()
    values_of(before, verb=Verb.PLAN)
    assert before == request()


@pytest.mark.parametrize(
    ("texts", "source"),
    [
        ({}, PRESET),
        ({"model_config": "{}"}, OWN),
        ({"model_config": "{}", "model_source": "preset"}, PRESET),
        ({"model_source": "own"}, OWN),
        ({"model_source": "elsewhere"}, PRESET),
    ],
)
def test_the_model_comes_from_what_is_chosen_or_given(texts: dict[str, str], source: str) -> None:
    assert FormValues(texts=texts).model_source == source


def test_the_cluster_comes_from_what_is_given() -> None:
    assert FormValues(texts={"node_groups": "[]"}).cluster_source == OWN


def test_one_text_can_be_changed() -> None:
    values = FormValues(texts={"num_devices": "63", "global_batch_size": "8"})
    assert values.with_text("num_devices", "64").texts == {"num_devices": "64", "global_batch_size": "8"}
