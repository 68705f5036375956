"""What can be named in a request, over HTTP."""

from http import HTTPStatus
from typing import Any

import pytest
from starlette.testclient import TestClient


@pytest.mark.parametrize(
    ("path", "key", "name"),
    [
        ("/v1/models", "models", "llama-3-70b"),
        ("/v1/clusters", "clusters", "h100-sxm"),
        ("/v1/devices", "devices", "H100-SXM5-80GB"),
        ("/v1/profiles", "profiles", "h100-sxm/published"),
        ("/v1/frameworks", "frameworks", "megatron-core"),
    ],
)
def test_everything_that_is_listed_can_be_shown(client: TestClient, path: str, key: str, name: str) -> None:
    entries = client.get(path).json()[key]
    assert name in [entry["name"] for entry in entries]
    shown = client.get(f"{path}/{name}")
    assert shown.status_code == HTTPStatus.OK
    assert shown.json()["name"] == name


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("/v1/models/lama-3-70b", "llama-3-70b"),
        ("/v1/clusters/h100", "h100-sxm"),
        ("/v1/devices/A100", "A100-SXM4-80GB"),
        ("/v1/devices/H1000-SXM", "H100-SXM5-80GB"),
        ("/v1/profiles/h100-sxm/publish", "h100-sxm/published"),
        ("/v1/frameworks/megatron-cor", "megatron-core"),
    ],
)
def test_a_name_that_is_not_there_gets_the_nearest(client: TestClient, path: str, nearest: str) -> None:
    answer = client.get(path)
    assert answer.status_code == HTTPStatus.NOT_FOUND
    assert nearest in answer.json()["nearest_legal"]


@pytest.mark.parametrize("kind", ["models", "clusters", "devices", "profiles", "frameworks"])
def test_a_name_with_control_characters_is_not_there(client: TestClient, kind: str) -> None:
    assert client.get(f"/v1/{kind}/a%00b").status_code == HTTPStatus.NOT_FOUND


def test_a_model_is_shown_at_a_sequence_length(client: TestClient) -> None:
    def flops(query: str) -> list[float]:
        layers = client.get(f"/v1/models/llama-3-8b{query}").json()["layers"]
        return [layer["forward_flops_per_sample"] for layer in layers]

    assert sum(flops("?sequence_length=1024")) < sum(flops(""))
    refused = client.get("/v1/models/llama-3-8b?sequence_length=0")
    assert refused.status_code == HTTPStatus.UNPROCESSABLE_ENTITY


def test_a_shown_cluster_can_be_planned_for(client: TestClient) -> None:
    shown = client.get("/v1/clusters/h100-sxm?num_devices=2").json()
    request: dict[str, Any] = {
        "model": {"preset": "gpt-2-124m"},
        "job": {"global_batch_size": 16, "sequence_length": 1024},
        "plan": {"data_parallel": 2},
    }
    by_name = client.post(
        "/v1/evaluations", json={**request, "cluster": {"preset": "h100-sxm", "num_devices": 2}}
    )
    by_numbers = client.post("/v1/evaluations", json={**request, "cluster": shown["cluster"]})
    assert by_numbers.status_code == HTTPStatus.CREATED
    assert by_numbers.json()["prediction"] == by_name.json()["prediction"]


def test_a_device_is_shown_by_any_of_its_names(client: TestClient) -> None:
    assert client.get("/v1/devices/NVIDIA H100 80GB HBM3").json()["name"] == "H100-SXM5-80GB"


def test_a_framework_is_shown_with_its_rules_in_a_release(client: TestClient) -> None:
    def rules(query: str) -> set[str]:
        return {rule["name"] for rule in client.get(f"/v1/frameworks/torchtitan{query}").json()["rules"]}

    assert "no-expert-parallel" in rules("?version=0.1")
    assert "no-expert-parallel" not in rules("")
    unknown = client.get("/v1/frameworks/torchtitan?version=9")
    assert unknown.status_code == HTTPStatus.NOT_FOUND
    assert unknown.json()["nearest_legal"] == ["0.3", "0.2", "0.1"]
