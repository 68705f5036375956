from dataclasses import replace
from math import log

import pytest

from planner.calibration import (
    Calibration,
    calibrate,
    calibration_facts,
    check_calibration,
)
from planner.cost.corrections import Corrections, Kind, corrections_in
from planner.errors import InvalidRequest
from planner.logged_steps import LoggedStep, PricedStep, before_calibration, predicted_steps
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import Profile
from planner.strategy import ShortPlan
from tests.unit.planner.settings import request_of, setting

PLANS = (
    ShortPlan(tensor_parallel=8),
    ShortPlan(tensor_parallel=2, data_parallel=4, zero_stage=1),
    ShortPlan(data_parallel=8, zero_stage=3),
    ShortPlan(tensor_parallel=4, pipeline_parallel=2),
)
HOST = {"kind": "host", "factor": 1.0, "relative_error": 0.1, "informed": True}
TRUE = {Kind.MATRIX_PRODUCT: 1.4, Kind.COLLECTIVE_INSIDE: 0.7}


def given_request(*, layers: int = 4, sequence_length: int = 2048) -> PlanRequest:
    return request_of(setting(num_layers=layers, sequence_length=sequence_length, global_batch_size=32))


def device() -> str:
    return given_request().cluster.node_groups[0].device.name


def logged(plan: ShortPlan, *, sequence_length: int = 2048, factor: float = 1.0) -> LoggedStep:
    """A step as a machine takes it on which products and collectives are as ``TRUE`` says."""
    step = LoggedStep(
        label=f"{plan.tensor_parallel} {plan.data_parallel} {sequence_length}",
        request=given_request(sequence_length=sequence_length),
        plan=plan,
        measured_seconds=1.0,
    )
    priced = PricedStep.of(step, device=device(), number=0)
    logs = {kind: log(value) for kind, value in TRUE.items()}
    return replace(step, measured_seconds=factor * priced.seconds(logs))


@pytest.fixture(scope="module")
def found() -> Calibration:
    steps = [logged(plan, sequence_length=length) for plan in PLANS for length in (1024, 4096)]
    return calibrate(steps, device=device())


def profile_of(calibration: Calibration, request: PlanRequest) -> Profile:
    facts = calibration_facts(calibration, request, created_at="2026-11-30T00:00:00+00:00")
    return Profile(name="own/calibrated", device=device(), facts=facts)


def test_steps_show_which_kinds_take_longer_than_predicted(found: Calibration) -> None:
    factors = {one.kind: one.correction.factor for one in found.kinds}
    assert factors[Kind.MATRIX_PRODUCT] == pytest.approx(1.4, rel=0.1)
    assert factors[Kind.COLLECTIVE_INSIDE] == pytest.approx(0.7, rel=0.2)
    assert found.error_after < 0.02
    assert found.error_before > 0.15


def test_a_kind_that_no_step_has_stays_at_one_and_says_so(found: Calibration) -> None:
    (network,) = (one for one in found.kinds if one.kind is Kind.COLLECTIVE_BETWEEN)
    assert network.correction.factor == 1.0
    assert not network.correction.informed
    assert network.largest_share == 0
    assert network.correction.relative_error == network.prior_relative_error > 0.2


def test_predictions_follow_the_calibration_and_are_surer(found: Calibration) -> None:
    request, plan = given_request(sequence_length=2048), PLANS[1]
    calibrated = replace(request, profiles=(*request.profiles, profile_of(found, request)))
    before, after = (evaluate_plan(one, plan) for one in (request, calibrated))
    assert before.prediction is not None
    assert after.prediction is not None
    true = logged(plan).measured_seconds
    assert after.prediction.step_time_seconds == pytest.approx(true, rel=0.03)
    low, high = after.prediction.step_time_interval_seconds
    assert low < true < high
    widths = [
        (one.step_time_interval_seconds[1] - one.step_time_seconds) / one.step_time_seconds
        for one in (before.prediction, after.prediction)
    ]
    assert widths[1] < widths[0]
    assert any("own/calibrated" in one.text for one in after.explanation)
    assert not after.warnings
    assert "own/calibrated" in {used.name for used in after.profiles}


def test_a_calibration_of_other_measurements_is_used_with_a_warning(found: Calibration) -> None:
    request = given_request()
    more = Profile(name="own/newer", device=device())
    used = (*request.profiles, more, profile_of(found, request))
    result = evaluate_plan(replace(request, profiles=used), PLANS[0])
    assert any("own/calibrated rests on other measurements" in warning for warning in result.warnings)


def test_the_newest_calibration_counts_and_a_calibration_is_fitted_without_any(found: Calibration) -> None:
    request = given_request()
    first, second = (
        replace(profile_of(found, request), name=name, facts=facts)
        for name, facts in (
            ("old", calibration_facts(found, request, created_at="2026-01-01")),
            ("new", calibration_facts(found, request, created_at="2026-02-01")),
        )
    )
    assert Corrections.of(request.cluster.node_groups[0].device, [second, first]).name == "new"
    assert before_calibration(replace(request, profiles=(*request.profiles, first))) == request


def test_too_few_steps_and_steps_of_other_machines_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="2 logged steps") as few:
        calibrate([logged(PLANS[0]), logged(PLANS[1])], device=device())
    assert few.value.nearest_legal == (3,)
    with pytest.raises(InvalidRequest, match="does not run on one node group of bench") as other:
        calibrate([logged(PLANS[0])] * 3, device="bench")
    assert other.value.pointer == "/steps/0/plan"
    never = replace(logged(PLANS[0]), measured_seconds=0.0)
    with pytest.raises(InvalidRequest, match=r"takes 0\.0 s") as zero:
        calibrate([logged(PLANS[0]), logged(PLANS[1]), never], device=device())
    assert zero.value.pointer == "/steps/2/step_seconds"


def test_corrections_are_read_back_as_they_were_written(found: Calibration) -> None:
    profile = profile_of(found, given_request())
    assert check_calibration(profile)
    assert corrections_in(profile) == replace(found.corrections, name=profile.name)
    assert not check_calibration(given_request().profiles[0])


@pytest.mark.parametrize(
    "fact",
    [
        3,
        {"kinds": []},
        {"kinds": [HOST | {"kind": "telepathy"}], "correlations": []},
        {"kinds": [HOST | {"factor": 0.0}], "correlations": []},
        {"kinds": [HOST | {"factor": "x"}], "correlations": []},
        {"kinds": [HOST]},
    ],
)
def test_a_calibration_of_another_form_is_refused_by_name(fact: object) -> None:
    with pytest.raises(InvalidRequest, match="the calibration in own is not of the form"):
        check_calibration(Profile(name="own", device="bench", facts={"calibration": fact}))


@pytest.mark.parametrize("kind", list(Kind))
def test_a_slower_kind_never_makes_a_step_faster(kind: Kind) -> None:
    step = PricedStep.of(logged(PLANS[1]), device=device(), number=0)
    seconds = [step.seconds({kind: value}) for value in (-0.5, 0.0, 0.5, 1.0)]
    assert seconds == sorted(seconds)
    assert seconds[1] == step.seconds({})


def test_plans_of_one_request_are_priced_as_one_by_one(found: Calibration) -> None:
    request = given_request()
    calibrated = replace(request, profiles=(*request.profiles, profile_of(found, request)))
    plans = []
    for plan in PLANS[:3]:
        result = evaluate_plan(calibrated, plan)
        assert result.plan is not None
        assert result.prediction is not None
        plans.append((result.plan, result.prediction.step_time_seconds))
    found_seconds = predicted_steps(calibrated, [plan for plan, _ in plans])
    assert found_seconds == tuple(seconds for _, seconds in plans)
