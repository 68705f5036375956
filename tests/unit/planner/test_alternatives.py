"""Other plans beside the best: which are told, that they are real, and what they cost."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from planner.alternatives import NEAR_ENOUGH, alternatives
from planner.cost.model import CostModel
from planner.job import Constraints
from planner.plan import Alternative, Result, Status
from planner.planning import PlanRequest, evaluate_plan, plan_training, searched_space
from planner.played_plan import play
from planner.prediction import predict
from planner.search.best_first import search
from planner.search.outcome import SearchOutcome
from planner.search.space import Space
from tests.unit.planner.settings import request_of, setting


def planned(
    *,
    model: str = "gpt-2-355m",
    framework: str = "megatron-core",
    num_devices: int = 8,
    global_batch_size: int = 16,
    sequence_length: int = 1024,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    memory_fraction: float = 0.94,
    **fixed: object,
) -> Result:
    judged = setting(
        model=model,
        cluster="a100-sxm-80gb",
        num_devices=num_devices,
        num_layers=8,
        global_batch_size=global_batch_size,
        sequence_length=sequence_length,
        framework=framework,
    )
    constraints = Constraints(fixed=fixed, bounds=bounds or {}, memory_fraction=memory_fraction)
    return plan_training(request_of(judged, constraints=constraints))


def pipelined(*, bounds: Mapping[str, tuple[float, float]] | None = None, **fixed: object) -> Result:
    """Return the answer to a request whose devices pay best in a pipeline: gradients cross nodes."""
    judged = setting(
        model="llama-3-70b",
        cluster="a100-sxm-80gb",
        num_devices=16,
        num_layers=16,
        global_batch_size=64,
        sequence_length=1024,
    )
    alone = {"tensor_parallel": 1, "context_parallel": 1, "micro_batch_size": 1}
    return plan_training(
        request_of(judged, constraints=Constraints(fixed={**alone, **fixed}, bounds=bounds or {}))
    )


def those(result: Result, beginning: str) -> list[Alternative]:
    return [other for other in result.alternatives if other.why.startswith(beginning)]


def test_every_alternative_is_another_plan_that_fits_and_evaluates_to_its_prediction() -> None:
    judged = setting(
        model="gpt-2-355m",
        cluster="a100-sxm-80gb",
        num_layers=8,
        global_batch_size=16,
        sequence_length=1024,
    )
    request = request_of(judged, constraints=Constraints(bounds={"pipeline_parallel": (1, 8)}))
    result = plan_training(request)
    plans = [result.plan, *(other.plan for other in result.alternatives)]
    assert len(plans) > 1
    assert all(one != other for number, one in enumerate(plans) for other in plans[:number])
    for other in result.alternatives:
        again = evaluate_plan(request, other.plan)
        assert again.status is Status.FITS
        assert again.prediction == other.prediction


def test_no_alternative_on_all_devices_is_faster_than_a_proven_plan() -> None:
    for framework in ("megatron-core", "pytorch"):
        result = planned(framework=framework)
        assert result.status is Status.OPTIMAL
        assert result.prediction is not None
        assert all(
            other.prediction.step_time_seconds >= result.prediction.step_time_seconds
            for other in result.alternatives
        )


def test_a_plan_with_a_pipeline_is_compared_with_the_best_without() -> None:
    result = pipelined()
    assert result.plan is not None
    assert result.plan.mesh.pipeline_parallel > 1
    (flat,) = those(result, "Without a pipeline")
    alone = pipelined(pipeline_parallel=1)
    assert alone.prediction is not None
    assert flat.plan.mesh.pipeline_parallel == 1
    assert flat.prediction.step_time_seconds == pytest.approx(
        alone.prediction.step_time_seconds, rel=NEAR_ENOUGH
    )


def test_what_the_caller_rules_out_is_no_alternative() -> None:
    assert not those(pipelined(bounds={"pipeline_parallel": (2, 8)}), "Without a pipeline")
    kept = planned(zero_stage=1, data_parallel=8, micro_batch_size=2)
    assert kept.plan is not None
    assert not those(kept, "On ")
    assert not those(kept, "The usual recipe")
    for other in kept.alternatives:
        assert other.plan.mesh.data_parallel == 8
        assert other.plan.batch.micro_batch_size == 2
        assert other.plan.sharding.zero_stage == 1


def test_half_the_devices_take_longer() -> None:
    result = planned()
    (half,) = those(result, "On 4 of the 8 devices")
    assert result.prediction is not None
    assert half.plan.mesh.world_size == 4
    assert half.prediction.step_time_seconds > result.prediction.step_time_seconds


def test_a_cut_that_half_the_devices_do_not_have_is_given_up_where_devices_are_few() -> None:
    result = planned(memory_fraction=0.03)
    (half,) = those(result, "On 4 of the 8 devices, layers cut alike")
    assert half.plan.mesh.pipeline_parallel > 1
    wide = planned(bounds={"tensor_parallel": (4, 8)}, num_devices=4)
    assert wide.plan is not None
    assert wide.plan.mesh.tensor_parallel == 4
    assert not those(wide, "On ")


def test_one_device_has_no_fewer() -> None:
    assert not those(planned(num_devices=1), "On ")


def test_ties_lie_within_the_interval_and_the_simplest_is_first() -> None:
    result = planned(framework="pytorch")
    assert result.prediction is not None
    ties = those(result, "Within the interval")
    assert ties
    latest = result.prediction.step_time_interval_seconds[1]
    assert all(tie.prediction.step_time_seconds <= latest for tie in ties)
    assert result.alternatives[: len(ties)] == tuple(ties)
    (plain,) = those(result, "Within the interval, and simpler: no sharded states")
    assert plain.plan.sharding.zero_stage == 0


def test_a_tie_that_is_the_usual_recipe_says_so() -> None:
    result = planned(model="llama-3-70b", global_batch_size=8, micro_batch_size=1)
    whys = [other.why for other in result.alternatives]
    assert (
        "Within the interval, and simpler: no tensor parallelism; the usual recipe of megatron-core" in whys
    )
    assert len([why for why in whys if "usual recipe" in why]) == 1


@pytest.mark.parametrize(
    ("asked", "technique"),
    [({"memory_fraction": 0.03}, "sharded states"), ({"global_batch_size": 4}, "context parallelism")],
)
def test_a_technique_that_cannot_be_spared_is_no_tie(asked: dict[str, Any], technique: str) -> None:
    assert not those(planned(**asked), f"Within the interval, and simpler: no {technique}")


def test_experts_on_every_device_are_a_tie_as_good_as_the_best_such_plan() -> None:
    asked: dict[str, Any] = {"model": "mixtral-8x7b", "global_batch_size": 32}
    (tie,) = those(planned(**asked), "Within the interval, and simpler: no expert parallelism")
    alone = planned(**asked, expert_parallel=1, tensor_parallel=1, pipeline_parallel=1)
    assert alone.prediction is not None
    assert tie.plan.mesh.expert_parallel == 1
    assert tie.prediction.step_time_seconds == pytest.approx(
        alone.prediction.step_time_seconds, rel=NEAR_ENOUGH
    )


def test_a_mesh_next_to_the_best_is_told_where_the_search_solved_no_other() -> None:
    result = planned(model="llama-3-70b", global_batch_size=16)
    (other,) = those(result, "Within the interval: another mesh")
    assert result.plan is not None
    assert result.prediction is not None
    assert other.plan.mesh != result.plan.mesh
    assert other.plan.mesh.world_size == result.plan.mesh.world_size
    latest = result.prediction.step_time_interval_seconds[1]
    assert result.prediction.step_time_seconds <= other.prediction.step_time_seconds <= latest


def searched() -> tuple[CostModel, PlanRequest, Space, SearchOutcome]:
    judged = setting(
        model="gpt-2-355m", cluster="a100-sxm-80gb", num_layers=8, global_batch_size=16, sequence_length=1024
    )
    request = request_of(judged)
    space = searched_space(request)
    model = CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=request.constraints.memory_fraction,
    )
    return model, request, space, search(space, model, request.solver)


def test_the_next_best_mesh_that_was_solved_is_told_where_nothing_ties() -> None:
    model, request, space, outcome = searched()
    split = replace(space, constraints=replace(space.constraints, fixed={"tensor_parallel": 2}))
    second = search(split, model, request.solver).best
    assert outcome.best is not None
    assert second is not None
    outcome.runners_up.append(second)
    prediction = predict(play(model, outcome.best.layout, outcome.best.assignment))
    certain = replace(prediction, step_time_interval_seconds=(prediction.step_time_seconds,) * 2)
    told = alternatives(model, space, outcome, prediction=certain, limits=request.solver)
    (runner_up,) = [other for other in told if other.why == "The next best mesh that was solved"]
    assert runner_up.plan.mesh == second.layout.mesh


def test_a_search_that_was_cut_short_has_its_own_plans_alone() -> None:
    model, request, space, outcome = searched()
    assert outcome.best is not None
    prediction = predict(play(model, outcome.best.layout, outcome.best.assignment))
    told = {}
    for finished in (True, False):
        outcome.finished = finished
        told[finished] = alternatives(model, space, outcome, prediction=prediction, limits=request.solver)
    assert len(told[False]) <= len({candidate.layout.mesh for candidate in outcome.runners_up})
    assert len(told[False]) < len(told[True])
