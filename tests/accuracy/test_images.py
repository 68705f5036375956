"""Predictions against published training rates of networks of images on one GPU."""

import csv
from pathlib import Path
from statistics import mean

import pytest

from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, Precision, SolverLimits
from planner.optimizers import OPTIMIZERS
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profiles
from planner.strategy import ShortPlan
from planner.workload.presets import preset_workload

DATA = Path(__file__).parent / "data" / "deeplearningexamples_images.csv"
TOLERANCE_FRACTION = {"resnet-50": 0.08, "efficientnet-b0": 0.12, "efficientnet-b4": 0.18}
TF32_TOLERANCE_FRACTION = 0.26
"""Those runs keep channels first, and every convolution turns its maps around: that is not priced."""
MEAN_TOLERANCE_FRACTION = 0.13


def published_runs() -> list[dict[str, str]]:
    lines = [line for line in DATA.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def error(run: dict[str, str]) -> float:
    """Return the relative error of the predicted step time."""
    batch_size = int(run["batch_size"])
    request = PlanRequest(
        workload=preset_workload(run["model"]),
        cluster=cluster_from_preset(run["cluster"], 1),
        job=Job(
            global_batch_size=batch_size,
            sequence_length=None,
            precision=Precision(run["precision"]),
            optimizer=OPTIMIZERS["sgd"],
            framework="pytorch",
        ),
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=tuple(builtin_profiles()),
    )
    prediction = evaluate_plan(request, ShortPlan(micro_batch_size=batch_size)).prediction
    assert prediction is not None
    return prediction.step_time_seconds * float(run["images_per_second"]) / batch_size - 1


@pytest.mark.parametrize("run", published_runs(), ids=lambda run: "-".join(list(run.values())[:3]))
def test_the_rate_is_close_to_the_published_one(run: dict[str, str]) -> None:
    is_tf32 = run["precision"] == "tf32"
    tolerance = TF32_TOLERANCE_FRACTION if is_tf32 else TOLERANCE_FRACTION[run["model"]]
    assert abs(error(run)) < tolerance


def test_errors_are_little_in_the_mean() -> None:
    assert mean(abs(error(run)) for run in published_runs()) < MEAN_TOLERANCE_FRACTION
