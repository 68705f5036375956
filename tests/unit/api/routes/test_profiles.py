"""Measurements sent to the service: good rows are kept, bad ones refused with reasons."""

from http import HTTPStatus
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.api.machines import machine_profile

KERNEL = machine_profile()["kernels"][0]


def test_a_profile_that_is_sent_can_be_fetched(client: TestClient) -> None:
    answer = client.post("/v1/profiles", json=machine_profile())
    assert answer.status_code == HTTPStatus.CREATED
    stored = answer.json()
    assert (stored["is_new"], stored["num_refused"]) == (True, 0)
    fetched = client.get(answer.headers["location"]).json()
    assert sorted(fetched["kernels"], key=str) == sorted(machine_profile()["kernels"], key=str)
    assert fetched["facts"] == machine_profile()["facts"]
    listed = {entry["name"]: entry for entry in client.get("/v1/profiles").json()["profiles"]}
    assert listed[stored["name"]]["digest"] == stored["digest"]


def test_the_same_profile_again_changes_nothing(client: TestClient) -> None:
    first = client.post("/v1/profiles", json=machine_profile())
    again = client.post("/v1/profiles", json=machine_profile())
    assert again.status_code == HTTPStatus.OK
    assert again.json() == first.json() | {"is_new": False}


def test_a_fetched_profile_is_the_same_when_it_is_sent_back(client: TestClient) -> None:
    first = client.post("/v1/profiles", json=machine_profile())
    fetched = client.get(first.headers["location"]).json()
    assert client.post("/v1/profiles", json=fetched).json()["is_new"] is False


def test_bad_rows_are_refused_one_by_one(client: TestClient) -> None:
    kernels = [KERNEL, {**KERNEL, "seconds": -1}, {**KERNEL, "dtype": "fp17"}, 5]
    answer = client.post("/v1/profiles", json=machine_profile(kernels=kernels))
    assert answer.status_code == HTTPStatus.CREATED
    stored = answer.json()
    assert [row["pointer"] for row in stored["refused"]] == ["/kernels/1", "/kernels/2", "/kernels/3"]
    assert all(row["detail"] for row in stored["refused"])
    assert len(client.get(answer.headers["location"]).json()["kernels"]) == 1


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"kernels": [{**KERNEL, "seconds": -1}], "collectives": []}, "/kernels/0"),
        ({"kernels": [], "collectives": []}, ""),
        ({"name": "h100-sxm/published"}, "/name"),
        ({"name": "a\nb"}, "/name"),
        ({"format": "other/1"}, "/format"),
        ({"colour": "red"}, "/colour"),
        ({"facts": []}, "/facts"),
    ],
)
def test_what_cannot_be_kept_is_a_problem(client: TestClient, changes: dict[str, Any], pointer: str) -> None:
    answer = client.post("/v1/profiles", json=machine_profile(**changes))
    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert answer.json()["pointer"] == pointer


@pytest.mark.parametrize("body", [b"[1]", b'"profile"', b"null"])
def test_what_is_no_profile_is_a_problem(client: TestClient, body: bytes) -> None:
    assert client.post("/v1/profiles", content=body).status_code == HTTPStatus.UNPROCESSABLE_ENTITY


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_a_problem(client: TestClient, body: bytes) -> None:
    assert client.post("/v1/profiles", content=body).status_code == HTTPStatus.BAD_REQUEST


def test_a_fact_that_json_lacks_is_a_problem(client: TestClient) -> None:
    body = b'{"format": "meshplan-profile/1", "name": "a", "device": "b", "facts": {"x": NaN}}'
    answer = client.post("/v1/profiles", content=body)
    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY


def test_a_measured_machine_becomes_a_cluster(client: TestClient) -> None:
    client.post("/v1/profiles", json=machine_profile())
    shown = client.get("/v1/clusters/local").json()
    assert shown["num_devices"] == 2
    request = {
        "model": {"preset": "gpt-2-124m"},
        "cluster": {"preset": "local", "num_devices": 2},
        "job": {"global_batch_size": 4, "sequence_length": 128, "precision": "fp32", "framework": "pytorch"},
        "plan": {"data_parallel": 2},
    }
    answer = client.post("/v1/evaluations", json=request)
    assert answer.status_code == HTTPStatus.CREATED
    assert answer.json()["profiles"][0]["name"] == machine_profile()["name"]


def test_report_of_a_profile_is_a_page(client: TestClient) -> None:
    client.post("/v1/profiles", json=machine_profile())
    answer = client.get("/profiles/cpu-small/measured", headers={"Accept": "text/html"})

    assert answer.status_code == HTTPStatus.OK
    assert "matrix_product fp32 forward" in answer.text
    assert "<style" not in answer.text
    assert client.get("/static/report.css").status_code == HTTPStatus.OK


def test_report_of_a_published_profile_draws_its_curves(client: TestClient) -> None:
    answer = client.get("/profiles/v100-sxm-16gb/published", headers={"Accept": "text/html"})

    assert answer.text.count("<polyline") > 3


def test_report_of_a_profile_that_is_not_there_is_not_found(client: TestClient) -> None:
    answer = client.get("/profiles/cpu-smal/measured", headers={"Accept": "text/html"})

    assert answer.status_code == HTTPStatus.NOT_FOUND
