"""Predictions against published step times of Megatron-LM on A100."""

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.cluster_presets import cluster_from_preset
from planner.framework import FULL_RECOMPUTE, SELECTIVE_RECOMPUTE
from planner.job import AttentionKind, Constraints, Job, Precision, SolverLimits
from planner.optimizers import OPTIMIZERS
from planner.plan import Result
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profile
from planner.strategy import ShortPlan
from planner.workload.presets import preset_workload

DATA = Path(__file__).parent / "data" / "korthikanti_2022_table5.csv"
TOLERANCE_FRACTION = 0.06
MEAN_TOLERANCE_FRACTION = 0.03


def published_runs() -> list[dict[str, str]]:
    lines = [line for line in DATA.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def evaluated(run: Mapping[str, str]) -> Result:
    request = PlanRequest(
        workload=preset_workload(run["model"]),
        cluster=cluster_from_preset("a100-sxm-80gb", int(run["num_devices"])),
        job=Job(
            global_batch_size=int(run["global_batch_size"]),
            sequence_length=2048,
            precision=Precision.FP16,
            optimizer=OPTIMIZERS["adam"],
            attention=AttentionKind.UNFUSED,
        ),
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=(builtin_profile("a100-sxm-80gb/published"),),
    )
    plan = ShortPlan(
        tensor_parallel=int(run["tensor_parallel"]),
        pipeline_parallel=int(run["pipeline_parallel"]),
        virtual_stages=int(run["virtual_stages"]),
        micro_batch_size=int(run["micro_batch_size"]),
        sequence_parallel=run["sequence_parallel"] == "true",
        recompute=FULL_RECOMPUTE if run["recompute"] == "full" else SELECTIVE_RECOMPUTE,
    )
    return evaluate_plan(request, plan)


@pytest.mark.parametrize("run", published_runs(), ids=lambda run: f"{run['model']}-{run['recompute']}")
def test_step_time_is_close_to_the_published_one(run: dict[str, str]) -> None:
    prediction = evaluated(run).prediction
    assert prediction is not None
    measured = float(run["step_time_seconds"])
    assert prediction.step_time_seconds == pytest.approx(measured, rel=TOLERANCE_FRACTION)
    low, high = prediction.step_time_interval_seconds
    assert low <= measured <= high


def test_errors_average_out_to_little() -> None:
    errors = []
    for run in published_runs():
        prediction = evaluated(run).prediction
        assert prediction is not None
        errors.append(prediction.step_time_seconds / float(run["step_time_seconds"]) - 1)
    assert sum(map(abs, errors)) / len(errors) < MEAN_TOLERANCE_FRACTION
