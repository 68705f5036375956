"""An illegal plan is answered with the rule that it breaks and the nearest legal values."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.expansion import expand_short_plan
from planner.legality import divisors, layout_violations, nearest_values
from planner.strategy import (
    DEFAULT_EXPERT_RANK_ORDER,
    DEFAULT_RANK_ORDER,
    PIPELINE_INSIDE,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    Sharding,
    ShortPlan,
    ZeroStage,
    expert_order_beside,
)
from tests.unit.planner.settings import setting

FULL = Recompute(mode=RecomputeMode.FULL)
UNKNOWN_MODULE = Recompute(mode=RecomputeMode.SELECTIVE, modules=("everything",))
GPIPE = Schedule(name=ScheduleName.GPIPE)


@pytest.mark.parametrize(
    ("plan", "pointer", "nearest"),
    [
        (ShortPlan(tensor_parallel=3, data_parallel=2), "/plan/tensor_parallel", 2),
        (ShortPlan(tensor_parallel=5, data_parallel=1), "/plan/tensor_parallel", 4),
        (ShortPlan(context_parallel=3, data_parallel=2), "/plan/context_parallel", 2),
        (ShortPlan(data_parallel=3), "/plan/data_parallel", 4),
        (ShortPlan(data_parallel=256), "/plan/data_parallel", 8),
        (ShortPlan(micro_batch_size=3), "/plan/micro_batch_size", 4),
        (ShortPlan(micro_batch_size=32), "/plan/micro_batch_size", 16),
        (ShortPlan(micro_batch_size=0), "/plan/micro_batch_size", 1),
        (ShortPlan(pipeline_parallel=0), "/plan/pipeline_parallel", 1),
        (ShortPlan(tensor_parallel=8, pipeline_parallel=8), "/plan/pipeline_parallel", 1),
        (ShortPlan(tensor_parallel=16), "/plan/tensor_parallel", 8),
        (ShortPlan(tensor_parallel=4, pipeline_parallel=8), "/plan/pipeline_parallel", 2),
        (ShortPlan(context_parallel=16), "/plan/context_parallel", 8),
        (ShortPlan(expert_parallel=2), "/plan/expert_parallel", 1),
        (ShortPlan(virtual_stages=2), "/plan/virtual_stages", 1),
        (ShortPlan(pipeline_parallel=8, virtual_stages=16), "/plan/virtual_stages", 4),
        (ShortPlan(pipeline_parallel=4, schedule=GPIPE), "/plan/schedule", "1f1b"),
        (ShortPlan(recompute=UNKNOWN_MODULE), "/plan/recompute", "core_attention"),
        (ShortPlan(pipeline_parallel=8, layers_per_stage=(4,) * 7), "/plan/layers_per_stage", [4] * 8),
    ],
)
def test_a_broken_rule_names_its_field_and_the_nearest_legal_value(
    plan: ShortPlan, pointer: str, nearest: object
) -> None:
    judged = setting()
    fixed = expand_short_plan(plan, judged)
    violations = {v.pointer: v for v in (*layout_violations(judged, fixed.layout), *fixed.violations)}
    assert pointer in violations
    if nearest is not None:
        assert nearest in violations[pointer].nearest_legal


@pytest.mark.parametrize(
    ("schedule", "stages", "given", "pointer", "nearest"),
    [
        (Schedule(name=ScheduleName.ZB_V, virtual_stages=4), 4, {}, "/plan/virtual_stages", 2),
        (Schedule(name=ScheduleName.BREADTH_FIRST), 4, {}, "/plan/virtual_stages", 2),
        (Schedule(name=ScheduleName.ZB_H1), 1, {}, "/plan/schedule", "1f1b"),
        (
            Schedule(name=ScheduleName.DUALPIPE_V, virtual_stages=2),
            4,
            {"micro_batch_size": 16, "data_parallel": 2},
            "/plan/num_micro_batches",
            8,
        ),
        (
            Schedule(name=ScheduleName.ZB_H1, virtual_stages=2),
            8,
            {"micro_batch_size": 32, "data_parallel": 1},
            "/plan/num_micro_batches",
            8,
        ),
    ],
)
def test_a_schedule_names_the_chunks_and_micro_batches_that_it_needs(
    schedule: Schedule, stages: int, given: dict[str, Any], pointer: str, nearest: object
) -> None:
    judged = setting(framework="any")
    plan = ShortPlan(
        pipeline_parallel=stages, virtual_stages=schedule.virtual_stages, schedule=schedule, **given
    )
    fixed = expand_short_plan(plan, judged)
    violations = {v.pointer: v for v in (*layout_violations(judged, fixed.layout), *fixed.violations)}
    assert list(violations) == [pointer]
    assert nearest in violations[pointer].nearest_legal


@pytest.mark.parametrize(
    "plan",
    [
        ShortPlan(),
        ShortPlan(tensor_parallel=8, sequence_parallel=True),
        ShortPlan(tensor_parallel=2, pipeline_parallel=2, context_parallel=2),
        ShortPlan(pipeline_parallel=4, virtual_stages=2, recompute=FULL),
        ShortPlan(data_parallel=4, pipeline_parallel=2, layers_per_stage=(15, 17)),
        ShortPlan(tensor_parallel=4, data_parallel=1),
    ],
)
def test_legal_plans_break_no_rule(plan: ShortPlan) -> None:
    judged = setting()
    fixed = expand_short_plan(plan, judged)
    assert (*layout_violations(judged, fixed.layout), *fixed.violations) == ()
    assert fixed.assignment is not None


@pytest.mark.parametrize(
    ("groups", "pointers"),
    [
        ({"parameters": 4, "gradients": 2, "optimizer": 8}, []),
        ({"parameters": 8, "gradients": 8, "optimizer": 4}, ["parameters", "gradients"]),
        ({"parameters": 3, "gradients": 2, "optimizer": 8}, ["parameters"]),
    ],
)
def test_who_updates_a_parameter_has_it_and_its_gradient(groups: dict[str, Any], pointers: list[str]) -> None:
    judged = setting(framework="any")
    sharding = replace(Sharding(zero_stage=ZeroStage.PARAMETERS), **groups)
    plan = ShortPlan(data_parallel=8, sharding=sharding)
    found = layout_violations(judged, expand_short_plan(plan, judged).layout)
    assert [violation.pointer for violation in found] == [f"/plan/sharding/{word}" for word in pointers]


@pytest.mark.parametrize(
    ("expert_parallel", "given", "broken"),
    [
        # Experts over the tensor-parallel ranks of a stage have the same ranks as all else.
        (2, {}, []),
        (2, {"expert_rank_order": expert_order_beside(PIPELINE_INSIDE)}, []),
        (
            2,
            {"expert_rank_order": DEFAULT_EXPERT_RANK_ORDER},
            [("/plan/expert_rank_order", list(expert_order_beside(PIPELINE_INSIDE)))],
        ),
        # Over replicas too they would reach into the next stage.
        (8, {}, [("/plan/rank_order", list(DEFAULT_RANK_ORDER))]),
    ],
)
def test_experts_have_their_stages_where_all_else_has_them(
    expert_parallel: int, given: dict[str, Any], broken: list[tuple[str, object]]
) -> None:
    judged = setting(model="mixtral-8x7b", framework="any", num_devices=16)
    plan = ShortPlan(
        tensor_parallel=2,
        data_parallel=4,
        pipeline_parallel=2,
        expert_parallel=expert_parallel,
        extra={"rank_order": PIPELINE_INSIDE, "expert_tensor_parallel": 1, **given},
    )
    found = layout_violations(judged, expand_short_plan(plan, judged).layout)
    assert [(violation.pointer, *violation.nearest_legal) for violation in found] == broken


def test_a_framework_refuses_what_it_does_not_have() -> None:
    judged = setting(framework="pytorch")
    fixed = expand_short_plan(ShortPlan(zero_stage=1), judged)
    pointers = [violation.pointer for violation in layout_violations(judged, fixed.layout)]
    assert pointers == ["/plan/zero_stage"]


@pytest.mark.parametrize(
    ("model", "module", "is_there"),
    [
        ("llama-3-8b", "mlp", True),
        ("llama-3-8b", "moe", False),
        ("mixtral-8x7b", "moe", True),
        ("llama-3-8b", "latent_projection", False),
    ],
)
def test_only_modules_of_the_model_are_computed_again(model: str, module: str, *, is_there: bool) -> None:
    judged = setting(model=model)
    asked = Recompute(mode=RecomputeMode.SELECTIVE, modules=(module,))
    violations = layout_violations(judged, expand_short_plan(ShortPlan(recompute=asked), judged).layout)
    assert (violations == ()) is is_there
    assert is_there or "mlp" in violations[0].nearest_legal


@given(st.integers(1, 5000))
def test_divisors_divide(number: int) -> None:
    found = divisors(number)
    assert list(found) == sorted({i for i in range(1, number + 1) if number % i == 0})


def test_nearest_values_are_near_by_ratio() -> None:
    assert nearest_values(24, (1, 2, 4, 8, 16, 32, 64)) == (16, 32, 64)


def test_what_nothing_splits_is_named() -> None:
    judged = setting(model="resnet-18", framework="pytorch")
    fixed = expand_short_plan(ShortPlan(tensor_parallel=2), judged)
    violations = {v.pointer: v for v in layout_violations(judged, fixed.layout)}
    assert violations["/plan/tensor_parallel"].rule.endswith("it cannot split the model's convolution")
    assert violations["/plan/tensor_parallel"].nearest_legal == (1,)
