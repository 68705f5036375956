import json
import shlex
from typing import Any

from api.pages.examples import EXAMPLES
from api.pages.http_request import curl_command, without_defaults
from api.schemas.request import PlanRequestDocument
from tests.unit.api.pages.documents import request

SHORT: dict[str, Any] = {
    "model": {"preset": "llama-3-8b"},
    "cluster": {"preset": "h100-sxm", "num_devices": 8},
    "job": {"global_batch_size": 128, "sequence_length": 8192},
}


def test_a_request_without_its_defaults_means_the_same() -> None:
    short = without_defaults(request(), is_evaluation=False)
    assert short == {
        "model": {"preset": "llama-3-70b"},
        "cluster": {"preset": "h100-sxm", "num_devices": 64},
        "job": {"global_batch_size": 1024, "sequence_length": 8192},
        "constraints": {"forbid": ["offload"]},
    }
    assert PlanRequestDocument.model_validate(short) == PlanRequestDocument.model_validate(request())


def test_curl_sends_the_request_whatever_stands_in_it() -> None:
    hostile = SHORT | {"model": {"huggingface": {"name": "it's; rm -rf $HOME `id`"}}}
    words = shlex.split(curl_command(hostile, base_url="http://127.0.0.1:8000/", is_evaluation=False))
    assert words[:2] == ["curl", "http://127.0.0.1:8000/v1/plans"]
    assert json.loads(words[-1]) == hostile


def test_an_evaluation_has_its_own_address() -> None:
    assert "/v1/evaluations " in curl_command(SHORT, base_url="http://host", is_evaluation=True)


def test_examples_are_requests_without_defaults() -> None:
    for example in EXAMPLES.values():
        normalised = PlanRequestDocument.model_validate(example.request).normalised()
        assert without_defaults(normalised, is_evaluation=False) == example.request
