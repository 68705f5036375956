"""Predictions against published training rates of a recommendation model.

Source: NVIDIA DeepLearningExamples, PyTorch/Recommendation/DLRM/README.md: samples per second on a DGX A100
with 8 x 80 GB, 65,536 samples a step, the "xlarge" tables of 141 GB (those of the preset have 96 GB; looking
up takes as long). Steps are so short that the host's work between them, a constant, is most of the error.
"""

import pytest

from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, Precision, SolverLimits
from planner.optimizers import OPTIMIZERS
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profiles
from planner.strategy import ShortPlan
from planner.workload.presets import preset_workload

BATCH_SIZE = 65536
DEVICES = 8
TOLERANCE_FRACTION = 0.65


@pytest.mark.parametrize(
    ("precision", "samples_per_second"), [(Precision.TF32, 10_700_000), (Precision.BF16, 16_400_000)]
)
def test_the_published_rate_lies_within_the_interval(precision: Precision, samples_per_second: int) -> None:
    request = PlanRequest(
        workload=preset_workload("dlrm-criteo-1tb"),
        cluster=cluster_from_preset("a100-sxm-80gb", DEVICES),
        job=Job(
            global_batch_size=BATCH_SIZE,
            sequence_length=None,
            precision=precision,
            optimizer=OPTIMIZERS["sgd"],
            framework="pytorch",
        ),
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=tuple(builtin_profiles()),
    )
    plan = ShortPlan(micro_batch_size=BATCH_SIZE // DEVICES, expert_parallel=DEVICES, zero_stage=0)
    prediction = evaluate_plan(request, plan).prediction
    assert prediction is not None
    published = BATCH_SIZE / samples_per_second
    low, high = prediction.step_time_interval_seconds
    assert low < published < high
    assert prediction.step_time_seconds == pytest.approx(published, rel=TOLERANCE_FRACTION)
