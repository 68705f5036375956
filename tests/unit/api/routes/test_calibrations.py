from typing import Any

from starlette.testclient import TestClient

from tests.unit.api.services import REQUEST

PLANS = ({"data_parallel": 2}, {"tensor_parallel": 2}, {"pipeline_parallel": 2})


def logged(client: TestClient, plan: dict[str, Any], *, factor: float) -> dict[str, Any]:
    request = {**REQUEST, "plan": plan}
    answered = client.post("/v1/evaluations", json=request).json()
    return {"request": request, "step_seconds": factor * answered["prediction"]["step_time_seconds"]}


def test_a_machine_is_calibrated_and_its_calibration_read_used_and_shown(client: TestClient) -> None:
    steps = [logged(client, plan, factor=1.3) for plan in PLANS]
    answered = client.post("/v1/calibrations", json={"steps": steps, "name": "own/calibrated"})
    assert answered.status_code == 201, answered.text
    assert answered.headers["Location"] == "/v1/profiles/own/calibrated"
    found = answered.json()
    assert found["median_error_after"] < 0.1 < found["median_error_before"]
    assert {kind["kind"] for kind in found["kinds"]} >= {"matrix_product", "collective_inside", "host"}

    document = client.get("/v1/profiles/own/calibrated").json()
    assert document["facts"]["calibration"]["kinds"][0]["factor"] == found["kinds"][0]["factor"]
    used = client.post("/v1/evaluations", json={**REQUEST, "plan": PLANS[0]}).json()
    assert {"name": "own/calibrated", "digest": found["digest"]} in used["profiles"]
    assert client.get("/profiles/own/calibrated").status_code == 200
    # What was exported can be sent to another service.
    again = client.post("/v1/profiles", json={**document, "name": "own/copy"})
    assert again.status_code == 201, again.text


def test_a_dry_run_answers_without_storing(client: TestClient) -> None:
    steps = [logged(client, plan, factor=1.3) for plan in PLANS]
    answered = client.post("/v1/calibrations", json={"steps": steps, "dry_run": True})
    assert answered.status_code == 200
    assert answered.json()["digest"] is None
    assert client.get(f"/v1/profiles/{answered.json()['name']}").status_code == 404


def test_too_few_steps_are_refused_with_the_number_that_would_do(client: TestClient) -> None:
    steps = [logged(client, PLANS[0], factor=1.3)]
    answered = client.post("/v1/calibrations", json={"steps": steps})
    assert answered.status_code == 422
    (fault,) = answered.json()["errors"]
    assert (fault["pointer"], fault["nearest_legal"]) == ("/steps", [3])


def test_a_calibration_of_another_form_is_not_taken(client: TestClient) -> None:
    document = {
        "format": "meshplan-profile/1",
        "name": "own",
        "device": "T4-16GB",
        "facts": {"calibration": {"kinds": [{"kind": "telepathy"}]}},
    }
    answered = client.post("/v1/profiles", json=document)
    assert answered.status_code == 422
    assert "not of the form" in answered.text
