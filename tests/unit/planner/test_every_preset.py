"""Every preset can be priced, and its plan comes back the same."""

from dataclasses import replace

import pytest

from planner.cluster_presets import cluster_from_preset
from planner.cost.model import CostModel
from planner.frameworks import framework_by_name
from planner.job import Constraints, Job, Precision, SolverLimits
from planner.plan import Status
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profile
from planner.setting import Setting
from planner.strategy import ShortPlan
from planner.units import NANOSECONDS_PER_SECOND
from planner.workload.presets import preset_names, preset_workload
from planner.workload.samples import has_sequence, with_samples

PROFILES = (builtin_profile("h100-sxm/published"),)


def request_for(name: str) -> PlanRequest:
    workload = preset_workload(name)
    sequence = 512 if has_sequence(workload) else None
    return PlanRequest(
        workload=workload if sequence else with_samples(workload, images=1),
        cluster=cluster_from_preset("h100-sxm", 8),
        job=Job(global_batch_size=64, sequence_length=sequence, framework="any"),
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=PROFILES,
    )


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_priced_on_two_stages(name: str) -> None:
    request = request_for(name)
    result = evaluate_plan(request, ShortPlan(pipeline_parallel=2, data_parallel=4))
    assert result.status in {Status.FITS, Status.DOES_NOT_FIT}, result.violations
    assert result.plan is not None
    assert result.prediction is not None
    assert 0 < result.prediction.mfu < 1
    assert (result.prediction.tokens_per_second is None) == (request.job.sequence_length is None)
    held = {(layers.kind, layers.first) for stage in result.plan.stages for layers in stage.chunks[0].layers}
    assert len(held) == sum(len(stage.chunks[0].layers) for stage in result.plan.stages)
    assert evaluate_plan(request, result.plan).prediction == result.prediction


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b"])
def test_experts_spread_over_ranks_save_memory_and_cost_exchanges(name: str) -> None:
    request = request_for(name)
    request = replace(request, job=replace(request.job, sequence_length=4096))
    alone, spread = (
        evaluate_plan(request, ShortPlan(expert_parallel=degree, data_parallel=8)).prediction
        for degree in (1, 8)
    )
    assert alone is not None
    assert spread is not None
    assert spread.memory[0].breakdown_bytes.parameters < alone.memory[0].breakdown_bytes.parameters / 3
    assert alone.breakdown_seconds.expert_parallel == 0 < spread.breakdown_seconds.expert_parallel
    assert spread.breakdown_seconds.data_parallel <= alone.breakdown_seconds.data_parallel


def test_a_busier_expert_rank_takes_longer_and_holds_more() -> None:
    request = request_for("mixtral-8x7b")
    plan = ShortPlan(expert_parallel=8, data_parallel=8)
    even = evaluate_plan(request, plan).prediction
    busy = evaluate_plan(replace(request, job=replace(request.job, expert_imbalance=1.5)), plan).prediction
    assert even is not None
    assert busy is not None
    assert busy.step_time_seconds > even.step_time_seconds
    assert busy.memory[0].breakdown_bytes.activations > even.memory[0].breakdown_bytes.activations


@pytest.mark.parametrize("precision", [Precision.FP8, Precision.FP8_BLOCK])
def test_utilisation_is_that_of_the_format_that_products_compute_in(precision: Precision) -> None:
    request = request_for("llama-3-8b")
    plan = ShortPlan(data_parallel=8)
    plain = evaluate_plan(request, plan).prediction
    narrow = evaluate_plan(replace(request, job=replace(request.job, precision=precision)), plan).prediction
    assert plain is not None
    assert narrow is not None
    peaks = request.cluster.node_groups[0].device.peak_flops_per_second
    for prediction, name in ((plain, "bf16"), (narrow, "fp8")):
        rate = prediction.model_flops_per_second_per_device
        assert prediction.mfu == pytest.approx(rate / peaks[name])


@pytest.mark.parametrize("name", preset_names())
def test_no_plan_undercuts_ideal_work(name: str) -> None:
    request = request_for(name)
    model = CostModel(
        setting=Setting(
            workload=request.workload,
            cluster=request.cluster,
            job=request.job,
            framework=framework_by_name(request.job.framework),
        ),
        group=request.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=1.0,
    )
    ideal_seconds = model.ideal_ns(8) / NANOSECONDS_PER_SECOND
    for plan in (ShortPlan(data_parallel=8, micro_batch_size=8), ShortPlan(data_parallel=8)):
        prediction = evaluate_plan(request, plan).prediction
        assert prediction is not None
        assert 0 < ideal_seconds <= prediction.step_time_seconds
