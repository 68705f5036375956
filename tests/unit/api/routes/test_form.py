import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from uuid import UUID

import pytest
from starlette.testclient import TestClient

from tests.unit.api.services import HeldRunner, given, running_service

EVALUATION = {
    "model_preset": "gpt-2-124m",
    "cluster_preset": "h100-sxm",
    "num_devices": "2",
    "global_batch_size": "16",
    "sequence_length": "1024",
    "data_parallel": "2",
    "verb": "evaluate",
}


@pytest.fixture(autouse=True)
def _as_a_browser(client: TestClient) -> None:
    client.headers["Accept"] = "text/html,application/xhtml+xml,*/*;q=0.8"


@pytest.fixture
def idle(seeded_url: str) -> Iterator[TestClient]:
    """A service that never answers, and takes two requests."""
    with running_service(seeded_url, make_runner=given(HeldRunner()), max_queued_plans=1) as client:
        yield client


def _value(html: str, name: str) -> str:
    """Return what stands in a text field."""
    found = re.search(rf'<input[^>]* name="{name}"[^>]* value="([^"]*)"', html)
    assert found is not None
    return found.group(1)


def _selected(html: str, name: str) -> str:
    """Return what is chosen in a field."""
    found = re.search(rf'<select id="{name}".*?</select>', html, re.DOTALL)
    assert found is not None
    chosen = re.search(r'<option value="([^"]*)" selected>', found.group(0))
    assert chosen is not None
    return chosen.group(1)


def _faults(html: str, name: str) -> str:
    """Return what is said beside a field; nothing where nothing is."""
    found = re.search(rf'<div class="faults" id="{name}-faults">(.*?)</div>', html, re.DOTALL)
    return found.group(1) if found else ""


def test_the_form_begins_with_an_example(client: TestClient) -> None:
    html = client.get("/").text
    assert _selected(html, "model_preset") == "llama-3-8b"
    assert (_value(html, "num_devices"), _value(html, "global_batch_size")) == ("8", "128")
    assert "faults" not in html


@pytest.mark.parametrize(
    ("query", "model", "devices"),
    [
        ("example=megatron-1t-3072-a100", "megatron-1t", "3072"),
        ("model_preset=mistral-7b&num_devices=16", "mistral-7b", "16"),
        ("example=unheard-of", "llama-3-8b", "8"),
        ("model_preset=no-such-model", "no-such-model", "8"),
    ],
)
def test_a_link_fills_the_form_in(client: TestClient, query: str, model: str, devices: str) -> None:
    html = client.get(f"/?{query}").text
    assert _selected(html, "model_preset") == model
    assert _value(html, "num_devices") == devices


def test_a_form_that_can_be_answered_leads_to_its_page(client: TestClient) -> None:
    response = client.post("/plans", data=EVALUATION, follow_redirects=False)
    assert response.status_code == HTTPStatus.SEE_OTHER
    path = response.headers["location"]
    assert path.startswith("/plans/")
    assert "gpt-2-124m" in client.get(path).text
    assert client.get(f"/v1/evaluations/{path.rsplit('/', 1)[1]}").json()["state"] == "done"


def test_what_is_wrong_stands_beside_its_field_and_the_rest_stays(client: TestClient) -> None:
    wrong = {
        **EVALUATION,
        "model_preset": "lama-3-8b",
        "num_devices": "two",
        "global_batch_size": "-4",
        "forbid": ["offload"],
        "sequence_length": "2,048",
    }
    response = client.post("/plans", data=wrong)
    assert response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    html = response.text
    assert "“two” is not a number" in _faults(html, "num_devices")
    assert "should be greater than or equal to 1" in _faults(html, "global_batch_size")
    assert (_value(html, "num_devices"), _value(html, "global_batch_size")) == ("two", "-4")
    assert _value(html, "sequence_length") == "2,048"
    assert _selected(html, "model_preset") == "lama-3-8b"
    assert 'value="offload" checked' in html


def test_a_misspelt_name_comes_back_with_names_to_click(client: TestClient) -> None:
    html = client.post("/plans", data={**EVALUATION, "model_preset": "lama-3-8b"}).text
    faults = _faults(html, "model_preset")
    assert '<button type="submit" name="use" value="model_preset=llama-3-8b">' in faults


def test_a_suggestion_is_taken_over_without_being_submitted(client: TestClient) -> None:
    clicked = {**EVALUATION, "num_devices": "63", "use": "num_devices=64", "global_batch_size": "x"}
    response = client.post("/plans", data=clicked)
    assert response.status_code == HTTPStatus.OK
    assert _value(response.text, "num_devices") == "64"
    assert _faults(response.text, "num_devices") == ""
    assert "not a number" in _faults(response.text, "global_batch_size")


def test_a_suggestion_for_no_field_is_refused(client: TestClient) -> None:
    response = client.post("/plans", data={**EVALUATION, "use": "colour=red"})
    assert response.status_code == HTTPStatus.BAD_REQUEST
    assert "There is no field colour" in response.text


def test_a_fault_of_an_evaluation_stands_beside_the_choice_it_blames(client: TestClient) -> None:
    html = client.post("/plans", data={**EVALUATION, "tensor_parallel": "0"}).text
    assert "should be greater than or equal to 1" in _faults(html, "tensor_parallel")
    assert 'name="verb_before" value="evaluate"' in html


def test_an_uploaded_file_is_read_and_stays_where_it_can_be_changed(client: TestClient) -> None:
    upload = {"model_file": ("config.json", b'{"model_type": "unheard-of"}', "application/json")}
    response = client.post("/plans", data={**EVALUATION, "model_source": "own"}, files=upload)
    assert response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert _faults(response.text, "model_config")
    assert "unheard-of" in response.text


def test_a_file_that_is_no_text_is_refused_beside_its_field(client: TestClient) -> None:
    upload = {"model_file": ("config.json", b"\xff\xfe\x00", "application/json")}
    response = client.post("/plans", data={**EVALUATION, "model_source": "own"}, files=upload)
    assert "not JSON" in _faults(response.text, "model_config")


def test_the_time_limit_of_the_service_is_said_beside_the_field(client: TestClient) -> None:
    html = client.post("/plans", data={**EVALUATION, "verb": "plan", "time_limit_seconds": "100000"}).text
    assert "3600 s at the most" in _faults(html, "time_limit_seconds")
    assert 'value="time_limit_seconds=3600.0"' in html


def test_an_earlier_request_can_be_changed(client: TestClient) -> None:
    path = client.post("/plans", data=EVALUATION, follow_redirects=False).headers["location"]
    html = client.get(f"/?from={path.rsplit('/', 1)[1]}").text
    assert _selected(html, "model_preset") == "gpt-2-124m"
    assert _value(html, "data_parallel") == "2"
    changed = client.get(f"/?from={path.rsplit('/', 1)[1]}&num_devices=4").text
    assert _value(changed, "num_devices") == "4"
    assert 'name="verb_before" value="evaluate"' in html


@pytest.mark.parametrize("plan_id", ["nonsense", str(UUID(int=0))])
def test_a_request_that_never_was_cannot_be_changed(client: TestClient, plan_id: str) -> None:
    response = client.get(f"/?from={plan_id}")
    assert response.status_code == HTTPStatus.NOT_FOUND
    assert "<h1>Not Found</h1>" in response.text


def test_a_form_from_another_site_is_refused(client: TestClient) -> None:
    response = client.post("/plans", data=EVALUATION, headers={"Sec-Fetch-Site": "cross-site"})
    assert response.status_code == HTTPStatus.FORBIDDEN


def test_an_own_node_group_and_model_are_taken(client: TestClient) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_hidden_layers": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    }
    group = {
        "name": "mine",
        "num_nodes": 1,
        "devices_per_node": 2,
        "device": "H100-SXM5-80GB",
        "levels": [
            {"name": "nvlink", "devices": 2, "bandwidth_bytes_per_second": 4.5e11, "latency_seconds": 2e-6}
        ],
    }
    own = {
        **EVALUATION,
        "model_source": "own",
        "model_config": json.dumps(config),
        "cluster_source": "own",
        "node_groups": json.dumps(group),
    }
    response = client.post("/plans", data=own)
    assert response.status_code == HTTPStatus.OK
    assert "llama (own configuration)" in response.text
    assert "2 × H100-SXM5-80GB" in response.text


def test_a_form_that_takes_longer_leads_to_its_progress(idle: TestClient) -> None:
    response = idle.post("/plans", data=EVALUATION)
    assert response.status_code == HTTPStatus.OK
    assert "Waiting" in response.text
    assert 'http-equiv="refresh"' in response.text


def test_a_service_that_is_busy_keeps_what_was_typed(idle: TestClient) -> None:
    answers = [idle.post("/plans", data=EVALUATION) for _ in range(3)]
    assert answers[-1].status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert "requests wait already" in answers[-1].text
    assert _value(answers[-1].text, "global_batch_size") == "16"
