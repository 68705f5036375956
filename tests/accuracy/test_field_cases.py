"""Predictions against public reports of what happened to a stated configuration.

Each case is a request and what it came to: it ran out of memory (``oom``), it ran (``fits``), the framework
or the arithmetic forbids it (``refused``, with words of the rule), or it ran out by so little that a warning
is the right answer (``at_risk``). Orders list plans from the smallest to the largest figure. What a report
lacks, or nothing can price yet, is listed with the reason.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from api.schemas.request import EvaluationRequestDocument
from planner.devices import device_by_name
from planner.plan import Prediction, Result, Status
from planner.planning import PlanRequest, evaluate_plan
from planner.relatives import published_profiles
from planner.units import GIBIBYTE

DATA = json.loads((Path(__file__).parent / "data" / "field_cases.json").read_text())
CASES: list[dict[str, Any]] = DATA["cases"]
ORDERS: list[dict[str, Any]] = DATA["orders"]
LEFT_OUT: list[dict[str, Any]] = DATA["left_out"]

REPORTS = 87
"""Reports in the collection; three of them are about figures, and have tests of their own."""
FIGURES = ("FC032", "FC080", "FC159")
ACCEPTED_SHARE = 0.95
RATE = "tokens_per_second_per_device"
RATE_TOLERANCE_FRACTION = 1 / 3


def named(entry: Mapping[str, Any]) -> str:
    return f"{entry['id']}-{entry.get('verdict', entry.get('figure'))}"


def evaluated(document: Mapping[str, Any]) -> Result:
    request = EvaluationRequestDocument.model_validate(document)
    workload = request.job.with_samples(request.model.to_workload())
    job, cluster = request.job.to_job(workload), request.cluster.to_cluster()
    profiles = [
        profile
        for group in cluster.node_groups
        for profile in published_profiles(group.device, job.precision)
    ]
    question = PlanRequest(
        workload=workload,
        cluster=cluster,
        job=job,
        constraints=request.constraints.to_constraints(),
        solver=request.solver.to_limits(),
        profiles=tuple(profiles),
    )
    return evaluate_plan(question, request.plan.to_plan())


def predicted(document: Mapping[str, Any]) -> Prediction:
    result = evaluated(document)
    assert result.prediction is not None, result.violations
    return result.prediction


def those(verdict: str) -> list[dict[str, Any]]:
    return [case for case in CASES if case["verdict"] == verdict]


@pytest.mark.parametrize("case", those("oom"), ids=named)
def test_what_ran_out_of_memory_does_not_fit(case: Mapping[str, Any]) -> None:
    prediction = predicted(case["request"])
    assert not prediction.fits
    if case.get("activations_alone"):
        fullest = max(prediction.memory, key=lambda stage: stage.peak_bytes)
        assert fullest.breakdown_bytes.activations > fullest.capacity_bytes


@pytest.mark.parametrize("case", [case for case in CASES if "host_bytes" in case], ids=named)
def test_hosts_need_what_was_measured(case: Mapping[str, Any]) -> None:
    (host,) = predicted(case["request"]).host
    low, high = case["host_bytes"]
    assert low <= host.memory_bytes <= high


@pytest.mark.parametrize("case", those("at_risk"), ids=named)
def test_what_ran_out_of_memory_by_little_is_warned_of(case: Mapping[str, Any]) -> None:
    result = evaluated(case["request"])
    assert result.status is Status.DOES_NOT_FIT or any("may run out" in text for text in result.warnings)


@pytest.mark.parametrize("case", those("fits"), ids=named)
def test_what_ran_is_legal(case: Mapping[str, Any]) -> None:
    assert evaluated(case["request"]).violations == ()


def test_nearly_all_that_ran_fits() -> None:
    fits = [predicted(case["request"]).fits for case in those("fits")]
    assert sum(fits) >= ACCEPTED_SHARE * len(fits)


@pytest.mark.parametrize("case", [case for case in CASES if RATE in case], ids=named)
def test_published_rates_are_met_to_a_third(case: Mapping[str, Any]) -> None:
    rate = predicted(case["request"]).tokens_per_second_per_device
    assert rate == pytest.approx(case[RATE], rel=RATE_TOLERANCE_FRACTION)


@pytest.mark.parametrize("case", those("refused"), ids=named)
def test_what_is_forbidden_is_refused_with_the_rule(case: Mapping[str, Any]) -> None:
    result = evaluated(case["request"])
    assert result.status is Status.ILLEGAL
    broken = next(violation for violation in result.violations if case["rule"] in violation.rule)
    assert case.get("nearest") in (None, *broken.nearest_legal)


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_variants_of_one_report_come_in_its_order(order: Mapping[str, Any]) -> None:
    jobs = order.get("jobs", [{}] * len(order["plans"]))
    figures = [
        figure_of(predicted(variant(order["base"], plan=plan, job=job)), order["figure"])
        for plan, job in zip(order["plans"], jobs, strict=True)
    ]
    assert figures == sorted(figures)
    assert len(set(figures)) == len(figures)


def variant(base: Mapping[str, Any], *, plan: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    return {**base, "job": {**base["job"], **job}, "plan": plan}


def figure_of(prediction: Prediction, name: str) -> float:
    if name == "step_time_seconds":
        return prediction.step_time_seconds
    return max(stage.peak_bytes for stage in prediction.memory)


def test_megatron_keeps_six_bytes_of_each_parameter_and_shares_twelve() -> None:
    """NVIDIA/Megatron-LM#654: 18 bytes without a distributed optimizer, 6 + 12 / DP with one."""
    for zero_stage, shared_by in ((0, 1), (1, 8)):
        document = variant(those("oom")[1]["request"], plan={"zero_stage": zero_stage}, job={})
        parts = predicted(document).memory[0].breakdown_bytes
        parameters = parts.parameters / 2
        assert parts.gradients == 4 * parameters
        assert parts.optimizer == pytest.approx(12 * parameters / shared_by, rel=1e-6)


def test_peaks_are_those_of_dense_products() -> None:
    """foundation-model-stack/fms-fsdp#89: half the utilisation, taken of the peak for 2:4 sparsity."""
    assert device_by_name("H100-SXM5-80GB").peak_flops_per_second["bf16"] < 1e15


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] == "FC125"], ids=named)
def test_what_must_fit_is_more_than_live_tensors(case: Mapping[str, Any]) -> None:
    """PrimeIntellect-ai/prime-rl#1126: 5.2 GiB allocated hid 7.8 GiB reserved."""
    for stage in predicted(case["request"]).memory:
        assert stage.peak_bytes > stage.peak_allocated_bytes + 0.5 * GIBIBYTE


def test_every_report_is_tested_or_left_out_for_a_reason() -> None:
    tested = {entry["id"] for entry in (*CASES, *ORDERS)} | set(FIGURES)
    left_out = Counter(entry["id"] for entry in LEFT_OUT)
    assert not tested & left_out.keys()
    assert max(left_out.values()) == 1
    assert len(tested) + len(left_out) == REPORTS
    assert all(entry["reason"] for entry in LEFT_OUT)
