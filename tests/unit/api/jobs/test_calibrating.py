"""Machines calibrated by what was logged on them, on a database of each kind."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from api.jobs.answering import answer
from api.jobs.calibrating import calibrate_machine
from api.schemas.calibration import CalibrationDocument, CalibrationRequestDocument
from api.schemas.request import EvaluationRequestDocument, PlanRequestDocument
from api.stores.plans import PlanKind, PlanState
from api.workspace import Workspace, migrated_workspace
from planner.errors import InvalidRequest
from tests.unit.api.machines import machine_profile

DEVICE, NAME = "cpu-small", "cpu-small/calibrated"
ASKED: dict[str, Any] = {
    "model": {"preset": "gpt-2-124m"},
    "cluster": {"preset": "cpu-small/measured", "num_devices": 2},
    "job": {"global_batch_size": 4, "sequence_length": 64, "precision": "fp32", "framework": "pytorch"},
}
PLANS = ({"data_parallel": 2, "zero_stage": 0}, {"tensor_parallel": 2}, {"pipeline_parallel": 2})


@pytest.fixture
def machine(database_url: str) -> Iterator[Workspace]:
    """A workspace that knows one small machine."""
    workspace = migrated_workspace(database_url)
    workspace.profiles.add(machine_profile())
    yield workspace
    workspace.close()


def evaluated(workspace: Workspace, plan: dict[str, Any]) -> dict[str, Any]:
    document = EvaluationRequestDocument.model_validate({**ASKED, "plan": plan})
    result = answer(document, result_id=uuid4(), library=workspace.library)
    assert result.prediction is not None
    return result.model_dump(mode="json")


def seconds_of(result: dict[str, Any]) -> float:
    return float(result["prediction"]["step_time_seconds"])


def tried(
    workspace: Workspace,
    plan: dict[str, Any],
    *,
    factor: float,
    keeps_request: bool = True,
    **changes: object,
) -> UUID:
    """Keep a trial that took ``factor`` times the predicted step."""
    result = evaluated(workspace, plan)
    report = {
        "result_id": result["id"],
        "planned_device": DEVICE,
        "device": DEVICE,
        "step_time": {"measured_seconds": factor * seconds_of(result), "spread_seconds": 0.0},
        "numerics": {"agree": True, "losses": []},
        "request": result["request"],
        "plan": result["plan"],
        **changes,
    }
    if not keeps_request:
        del report["request"]
        workspace.plans.add(
            result["request"], kind=PlanKind.EVALUATION, result=result, plan_id=UUID(result["id"])
        )
    return workspace.trials.add(report, result_id=UUID(result["id"]), device=DEVICE)


def calibrated(workspace: Workspace, **given: object) -> CalibrationDocument:
    return calibrate_machine(CalibrationRequestDocument.model_validate(given), workspace=workspace)


def test_trials_calibrate_their_machine_and_predictions_follow(machine: Workspace) -> None:
    before = [seconds_of(evaluated(machine, plan)) for plan in PLANS]
    for plan in PLANS:
        tried(machine, plan, factor=1.5)
    found = calibrated(machine)
    assert (found.name, found.device, found.digest) == (NAME, DEVICE, found.digest)
    assert found.median_error_before == pytest.approx(1 / 3)
    assert found.median_error_after < 0.1

    after = [evaluated(machine, plan) for plan in PLANS]
    for seconds, result in zip(before, after, strict=True):
        assert seconds_of(result) == pytest.approx(1.5 * seconds, rel=0.1)
        assert {"name": NAME, "digest": found.digest} in result["profiles"]
    (stored,) = (one for one in machine.profiles.summaries() if one.name == NAME)
    assert stored.digest == found.digest
    assert stored.facts["calibration"]["median_error_after"] == found.median_error_after

    assert machine.profiles.delete(NAME)
    assert [seconds_of(evaluated(machine, plan)) for plan in PLANS] == before


def test_a_second_calibration_starts_from_the_measurements_again(machine: Workspace) -> None:
    for plan in PLANS:
        tried(machine, plan, factor=1.5)
    first, second = calibrated(machine), calibrated(machine)
    assert [one.factor for one in second.kinds] == pytest.approx([one.factor for one in first.kinds])
    assert len([one for one in machine.profiles.names() if one == NAME]) == 1


def test_a_trial_without_its_request_counts_where_the_plan_is_stored(machine: Workspace) -> None:
    for plan in PLANS:
        tried(machine, plan, factor=1.2, keeps_request=False)
    assert len(calibrated(machine, dry_run=True).steps) == 3


def test_a_dry_run_stores_nothing(machine: Workspace) -> None:
    for plan in PLANS:
        tried(machine, plan, factor=1.2)
    assert calibrated(machine, dry_run=True).digest is None
    assert NAME not in machine.profiles.names()


def test_trials_that_do_not_count_are_named_with_the_reason(machine: Workspace) -> None:
    for plan in PLANS:
        tried(machine, plan, factor=1.2)
    wrong = tried(machine, PLANS[0], factor=9.0, numerics={"agree": False, "losses": []})
    other = tried(machine, PLANS[0], factor=9.0, device="cpu-large")
    lost = machine.trials.add(
        {**other_report(machine, other), "device": DEVICE}, result_id=None, device=DEVICE
    )
    reasons = {one.label: one.reason for one in calibrated(machine, dry_run=True).unused}
    assert reasons == {
        f"trial {wrong}": "its losses are not those of one process",
        f"trial {other}": "planned for cpu-small, run on cpu-large",
        f"trial {lost}": "the request of its plan is not stored",
    }


def other_report(workspace: Workspace, trial_id: UUID) -> dict[str, Any]:
    record = workspace.trials.get(trial_id)
    assert record is not None
    return {key: value for key, value in record.report.items() if key != "request"}


def logged(workspace: Workspace, plan: dict[str, Any], *, factor: float) -> dict[str, Any]:
    return {
        "request": {**ASKED, "plan": plan},
        "step_seconds": factor * seconds_of(evaluated(workspace, plan)),
        "label": str(plan),
    }


def test_steps_that_were_logged_elsewhere_calibrate_as_well(machine: Workspace) -> None:
    tried(machine, PLANS[0], factor=9.0)
    steps = [logged(machine, plan, factor=0.8) for plan in PLANS]
    found = calibrated(machine, steps=steps, name="own")
    assert [step.label for step in found.steps] == [str(plan) for plan in PLANS]
    assert "own" in machine.profiles.names()


@pytest.mark.parametrize(
    ("given", "pointer", "reason"),
    [
        ({}, "/steps", "no step is known of any machine"),
        ({"trials": [str(UUID(int=1))]}, "/trials/0", "no trial"),
        ({"device": "cpu-large"}, "/steps", "0 logged steps"),
    ],
)
def test_too_little_is_refused_by_field(
    machine: Workspace, given: dict[str, Any], pointer: str, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        calibrated(machine, **given)
    assert refused.value.pointer == pointer


def test_what_would_be_lost_or_is_not_known_is_refused(machine: Workspace) -> None:
    for plan in PLANS:
        tried(machine, plan, factor=1.2)
    with pytest.raises(InvalidRequest, match="has measurements") as taken:
        calibrated(machine, name="cpu-small/measured")
    assert taken.value.pointer == "/name"
    step = logged(machine, PLANS[0], factor=1.0)
    unknown = {**step, "request": {**step["request"], "profiles": ["nothing"]}}
    with pytest.raises(InvalidRequest, match="no profile") as faulty:
        calibrated(machine, steps=[step, unknown, step])
    assert faulty.value.pointer == "/steps/1/request/profiles/0"


def planned(workspace: Workspace) -> dict[str, Any]:
    result = answer(
        PlanRequestDocument.model_validate({**ASKED, "solver": {"time_limit_seconds": 5}}),
        result_id=uuid4(),
        library=workspace.library,
    )
    return result.model_dump(mode="json")


def test_stored_plans_that_are_no_longer_the_best_are_listed(machine: Workspace) -> None:
    result = planned(machine)
    slower = evaluated(machine, PLANS[2])
    other = {"why": "Another", "plan": slower["plan"], "prediction": slower["prediction"]}
    kept = {
        name: {**result, "plan": plan["plan"], "alternatives": [{**other, **alternative}]}
        for name, plan, alternative in (
            ("best", result, {}),
            # As if the search had found the slower one, under figures that nobody has now.
            ("worse", slower, {"plan": result["plan"], "prediction": result["prediction"]}),
        )
    }
    ids = {
        name: machine.plans.add(
            result["request"], kind=PlanKind.PLAN, state=PlanState.DONE, status="optimal", result=document
        )
        for name, document in kept.items()
    }
    for plan in PLANS:
        tried(machine, plan, factor=1.2)
    found = calibrated(machine)
    assert found.num_plans_compared == 2
    (changed,) = found.changed_plans
    assert changed.id == ids["worse"]
    assert (changed.better, changed.pointer) == ("Another", "/alternatives/0")
    assert changed.better_step_time_seconds < changed.step_time_seconds


def test_a_trial_counts_by_how_far_its_steps_scatter(machine: Workspace) -> None:
    def errors(*samples: float) -> dict[str, float]:
        measured = {"step_time": {"samples_seconds": list(samples)}}
        trials = [str(tried(machine, plan, factor=1.1, measured=measured)) for plan in PLANS]
        kinds = calibrated(machine, trials=trials, dry_run=True).kinds
        return {one.kind: one.relative_error for one in kinds}

    steady, scattered = errors(1.0, 1.001, 0.999), errors(0.5, 1.0, 1.5)
    assert all(steady[kind] <= scattered[kind] for kind in steady)
    assert any(steady[kind] < 0.8 * scattered[kind] for kind in steady)
