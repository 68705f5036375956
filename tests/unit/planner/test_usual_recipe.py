"""The plan that people set up by hand: least model parallelism that fits, with the framework's defaults."""

import pytest

from planner.cost.model import CostModel
from planner.full_plan import full_plan
from planner.job import Constraints
from planner.search.space import search_space
from planner.strategy import RecomputeMode, TrainingPlan
from planner.usual_recipe import usual_recipe
from tests.unit.planner.settings import request_of, setting


def recipe(
    *,
    model: str = "llama-3-70b",
    framework: str = "megatron-core",
    num_devices: int = 16,
    num_layers: int = 8,
    memory_fraction: float = 0.94,
) -> TrainingPlan | None:
    """Return the usual recipe, None where none fits."""
    judged = setting(
        model=model,
        cluster="a100-sxm-80gb",
        num_devices=num_devices,
        num_layers=num_layers,
        global_batch_size=32,
        sequence_length=1024,
        framework=framework,
    )
    request = request_of(judged)
    priced = CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=memory_fraction,
    )
    found = usual_recipe(search_space(judged, Constraints()), priced)
    return None if found is None else full_plan(found.layout, found.assignment, judged)


def fitting(plan: TrainingPlan | None) -> TrainingPlan:
    assert plan is not None
    return plan


def recomputation(plan: TrainingPlan) -> set[RecomputeMode]:
    decoders = [
        layers
        for stage in plan.stages
        for chunk in stage.chunks
        for layers in chunk.layers
        if layers.kind == "decoder"
    ]
    return {layers.recompute.mode for layers in decoders}


@pytest.mark.parametrize(("framework", "zero_stage"), [("megatron-core", 1), ("pytorch", 3)])
def test_a_small_model_is_replicated_and_sharded_as_the_framework_does(
    framework: str, zero_stage: int
) -> None:
    plan = fitting(recipe(model="gpt-2-355m", framework=framework))
    assert (plan.mesh.tensor_parallel, plan.mesh.pipeline_parallel, plan.mesh.data_parallel) == (1, 1, 16)
    assert plan.batch.micro_batch_size == 1
    assert plan.sharding.zero_stage == zero_stage
    assert recomputation(plan) == {RecomputeMode.NONE}


def test_a_larger_model_takes_tensor_parallelism_before_a_pipeline() -> None:
    plans = [fitting(recipe(memory_fraction=fraction)) for fraction in (0.94, 0.5, 0.35)]
    degrees = [(plan.mesh.tensor_parallel, plan.mesh.pipeline_parallel) for plan in plans]
    assert degrees == sorted(degrees)
    assert len(set(degrees)) > 1
    assert all(pipeline == 1 or tensor == 8 for tensor, pipeline in degrees)


def test_a_pipeline_comes_when_a_node_does_not_hold_the_model() -> None:
    plan = fitting(recipe(model="gpt-3-175b", num_devices=32, num_layers=32, memory_fraction=0.7))
    assert plan.mesh.tensor_parallel == 8
    assert plan.mesh.pipeline_parallel > 1


def test_layers_are_recomputed_where_nothing_else_helps() -> None:
    plan = fitting(recipe(model="gpt-2-355m", num_devices=1, memory_fraction=0.045))
    assert recomputation(plan) == {RecomputeMode.FULL}


def test_nothing_is_told_where_no_plan_of_the_kind_fits() -> None:
    assert recipe(memory_fraction=0.02) is None


def test_experts_are_spread_over_a_node() -> None:
    assert fitting(recipe(model="mixtral-8x7b", num_layers=4)).mesh.expert_parallel == 8
