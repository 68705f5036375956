"""Whole requests: the plan equals brute force, holds its promises, and comes back the same."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.model import CostModel
from planner.cost.pipeline import chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.errors import IllegalChoice, InvalidRequest, UnknownName
from planner.expansion import zero_sharding
from planner.framework import Grain
from planner.job import Constraints
from planner.legality import Setting, divisors, layout_violations
from planner.offload_limits import HostShare
from planner.plan import Status
from planner.planning import PlanRequest, Progress, best_plan, evaluate_plan, plan_timeline, plan_training
from planner.search.module_sets import module_sets
from planner.strategy import (
    Batch,
    Layout,
    Mesh,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    ShortPlan,
)
from planner.units import NANOSECONDS_PER_SECOND
from tests.unit.planner.joined import generations, request_on
from tests.unit.planner.search.enumeration import every_assignment
from tests.unit.planner.settings import request_of, setting


def small(
    *, framework: str, num_devices: int, num_layers: int, batch: int, model: str = "gpt-2-355m"
) -> Setting:
    return setting(
        model=model,
        cluster="a100-sxm-80gb",
        num_devices=num_devices,
        num_layers=num_layers,
        global_batch_size=batch,
        sequence_length=1024,
        framework=framework,
    )


def every_layout(judged: Setting) -> Iterator[Layout]:
    """Enumerate by plain loops; the rules alone decide what is legal."""
    devices, framework = judged.cluster.num_devices, judged.framework
    degrees = divisors(devices)
    choices: list[tuple[Recompute, ...]] = [framework.recompute]
    if framework.recompute_grain is Grain.JOB:
        # Of these models' modules nothing but the MLP has a name: a fused core is left out.
        mlp = Recompute(mode=RecomputeMode.SELECTIVE, modules=("mlp",))
        choices = [(option,) for option in (*framework.recompute, mlp)]
    else:
        # Some schedules do not go with every mode.
        choices.append(tuple(o for o in framework.recompute if o.mode is not RecomputeMode.FULL))
    for tensor, context, pipeline, size in product(
        degrees, degrees, degrees, divisors(judged.job.global_batch_size)
    ):
        data = devices // (tensor * context * pipeline)
        if tensor * context * pipeline * data != devices or judged.job.global_batch_size % (data * size):
            continue
        passes = judged.job.global_batch_size // (data * size)
        for sequence, zero, name, turns, recompute in product(
            (False, True),
            framework.zero_stages,
            framework.schedules,
            range(1, judged.num_layers + 3),
            choices,
        ):
            if (sequence and tensor == 1) or (zero and data * context == 1):
                continue
            if turns * pipeline > judged.num_layers + 2 or (turns > 1 and pipeline == 1):
                continue
            mesh = Mesh(
                data_parallel=data,
                tensor_parallel=tensor,
                context_parallel=context,
                pipeline_parallel=pipeline,
                sequence_parallel=sequence,
            )
            for expert, inside in product(degrees, {1, tensor}):
                layout = Layout(
                    mesh=replace(mesh, expert_parallel=expert, expert_tensor_parallel=inside),
                    batch=Batch(micro_batch_size=size, num_micro_batches=passes),
                    schedule=Schedule(name=name, virtual_stages=turns),
                    sharding=zero_sharding(zero, replicas=data * context, framework=framework),
                    recompute=recompute,
                )
                if not layout_violations(judged, layout):
                    yield layout
                    yield from (
                        other for other in offloaded(layout, judged) if not layout_violations(judged, other)
                    )


def offloaded(layout: Layout, judged: Setting) -> Iterator[Layout]:
    """Enumerate what a search tries on the host: states by tenths, activations all or none of a layer's.

    Full recomputation keeps its inputs on one side.
    """
    limits = judged.framework.limits.offload
    shares = [limits.shares(tenths / 10) for tenths in range(11)]
    shares += [replace(share, parameters=1.0) for share in shares[-1:]]
    ways: list[tuple[tuple[Recompute, ...], tuple[float, ...]]] = [(layout.recompute, ())]
    if len(layout.recompute) > 1 and limits.activations is not HostShare.NONE:
        whole = [mode for mode in layout.recompute if mode.mode is RecomputeMode.FULL]
        others = [mode for mode in layout.recompute if mode not in whole]
        for here, there in ((layout.recompute, others), (others, layout.recompute)):
            shares_of_modes = (0.0,) * len(here) + (1.0,) * len(there)
            ways += [((*here, *there), shares_of_modes)]
    for on_host, (recompute, activations) in product(shares, ways):
        if on_host.is_any or activations:
            yield replace(layout, on_host=on_host, recompute=recompute, activations=activations)


def brute_force_ns(judged: Setting, *, memory_fraction: float) -> int | None:
    """Return the least step time; of plans that keep something on the host where no other fits."""
    request = request_of(judged)
    model = CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=memory_fraction,
    )
    best: dict[bool, int] = {}
    for layout in every_layout(judged):
        problem = model.problem(layout)
        for assignment in every_assignment(problem):
            costs = chunk_costs(problem, assignment)
            stages = range(problem.shape.num_stages)
            if max(stage_peak_bytes(problem, costs, stage) for stage in stages) <= problem.limit_bytes:
                taken = replay(problem, costs).makespan_ns
                best[layout.offloads] = min(best.get(layout.offloads, taken), taken)
    return best.get(False, best.get(True))


@settings(max_examples=12)
@given(
    framework=st.sampled_from(["megatron-core", "pytorch", "any"]),
    num_devices=st.sampled_from([1, 2]),
    num_layers=st.integers(1, 3),
    batch=st.sampled_from([2, 4, 6]),
    memory_fraction=st.sampled_from([0.94, 0.05, 0.03, 0.02]),
)
def test_no_plan_of_a_small_space_beats_the_returned_one(
    framework: str, num_devices: int, num_layers: int, batch: int, memory_fraction: float
) -> None:
    judged = small(framework=framework, num_devices=num_devices, num_layers=num_layers, batch=batch)
    expected = brute_force_ns(judged, memory_fraction=memory_fraction)
    result = plan_training(request_of(judged, constraints=Constraints(memory_fraction=memory_fraction)))
    if expected is None:
        assert result.status is Status.INFEASIBLE
        assert result.shortage[0].needed_bytes > result.shortage[0].available_bytes
    else:
        assert result.certificate is not None
        assert result.status is Status.OPTIMAL
        assert round(result.certificate.value * NANOSECONDS_PER_SECOND) == expected


@pytest.mark.parametrize(
    ("model", "framework", "num_layers"),
    [
        ("mixtral-8x7b", "megatron-core", 2),
        ("mixtral-8x7b", "any", 1),
        ("deepseek-v2-lite", "megatron-core", 3),
    ],
)
def test_no_plan_with_experts_beats_the_returned_one(model: str, framework: str, num_layers: int) -> None:
    judged = small(framework=framework, num_devices=4, num_layers=num_layers, batch=4, model=model)
    expected = brute_force_ns(judged, memory_fraction=0.94)
    result = plan_training(request_of(judged))
    assert result.certificate is not None
    assert result.status is Status.OPTIMAL
    assert round(result.certificate.value * NANOSECONDS_PER_SECOND) == expected


def test_a_returned_plan_evaluates_to_the_same_prediction() -> None:
    request = request_of(small(framework="any", num_devices=4, num_layers=6, batch=8))
    result = plan_training(request)
    assert result.plan is not None
    again = evaluate_plan(request, result.plan)
    assert again.prediction == result.prediction
    assert again.plan == result.plan


def test_the_same_request_gets_the_same_answer() -> None:
    request = request_of(small(framework="megatron-core", num_devices=4, num_layers=6, batch=8))
    first, second = plan_training(request), plan_training(request)
    assert first.plan == second.plan
    assert first.prediction == second.prediction


def test_the_breakdown_adds_up_to_the_step() -> None:
    judged = small(framework="megatron-core", num_devices=8, num_layers=8, batch=16)
    for plan in (
        ShortPlan(pipeline_parallel=4, data_parallel=2),
        ShortPlan(tensor_parallel=2, pipeline_parallel=2, virtual_stages=2, sequence_parallel=True),
        ShortPlan(zero_stage=3),
    ):
        prediction = evaluate_plan(request_of(judged), plan).prediction
        assert prediction is not None
        parts = prediction.breakdown_seconds
        whole = sum(getattr(parts, name) for name in parts.__dataclass_fields__)
        assert whole == pytest.approx(prediction.step_time_seconds)
        assert min(getattr(parts, name) for name in parts.__dataclass_fields__) >= 0
        for stage in prediction.memory:
            total = sum(
                getattr(stage.breakdown_bytes, name) for name in stage.breakdown_bytes.__dataclass_fields__
            )
            assert total == pytest.approx(stage.peak_bytes)


def test_what_does_not_fit_says_how_much_is_missing_and_what_would_fit() -> None:
    judged = setting(
        model="llama-3-70b",
        cluster="a100-sxm-40gb",
        num_devices=8,
        global_batch_size=64,
        sequence_length=2048,
    )
    result = plan_training(request_of(judged))
    assert result.status is Status.INFEASIBLE
    shortage = result.shortage[0]
    # With all optimizer states on the hosts parameters and gradients remain.
    assert shortage.needed_bytes > 70e9 * 6 / 8 > shortage.available_bytes
    assert result.nearest_fit is not None
    assert result.nearest_fit.change == {"/cluster/num_devices": 16}


def test_without_offload_all_states_have_to_fit() -> None:
    judged = setting(
        model="llama-3-70b",
        cluster="a100-sxm-40gb",
        num_devices=8,
        global_batch_size=64,
        sequence_length=2048,
    )
    result = plan_training(request_of(judged, constraints=Constraints(forbid=("offload",))))
    assert result.status is Status.INFEASIBLE
    shortage = result.shortage[0]
    assert shortage.needed_bytes > 70e9 * 18 / 8 > shortage.available_bytes
    assert result.nearest_fit is not None
    assert result.nearest_fit.change == {"/cluster/num_devices": 64}


def test_hosts_that_are_too_small_are_named() -> None:
    """AdamW over all of Llama 70B with FSDP's offload needs 16 bytes per parameter, more than a TB."""
    judged = setting(
        model="llama-3-70b",
        cluster="a100-sxm-40gb",
        num_devices=8,
        global_batch_size=8,
        sequence_length=2048,
        framework="torchtitan",
    )
    result = plan_training(request_of(judged))
    assert result.status is Status.INFEASIBLE
    host = {shortage.resource: shortage for shortage in result.shortage}["host_memory"]
    assert host.needed_bytes == pytest.approx(16 * 70.55e9, rel=0.01)
    assert host.available_bytes == pytest.approx(0.94 * 1.0995e12)


@pytest.mark.parametrize("framework", ["deepspeed", "pytorch"])
def test_a_plan_with_offload_fits_where_none_without_it_does(framework: str) -> None:
    judged = setting(
        model="llama-2-13b",
        cluster="a100-sxm-40gb",
        num_devices=2,
        global_batch_size=8,
        sequence_length=2048,
        framework=framework,
        num_layers=20,
    )
    result = plan_training(request_of(judged))
    assert result.status is Status.OPTIMAL
    assert result.prediction is not None
    assert result.plan is not None
    assert result.prediction.host[0].memory_bytes > 0
    assert result.prediction.breakdown_seconds.offload > 0
    again = evaluate_plan(request_of(judged), result.plan)
    assert again.prediction == result.prediction
    assert again.plan == result.plan
    forbidden = plan_training(request_of(judged, constraints=Constraints(forbid=("offload",))))
    assert forbidden.status is Status.INFEASIBLE
    assert any("offload" in sentence.text for sentence in result.explanation)


def test_a_share_that_is_fixed_is_kept() -> None:
    judged = small(framework="megatron-core", num_devices=2, num_layers=3, batch=4)
    fixed = Constraints(fixed={"offload": {"optimizer": 0.5}})
    result = plan_training(request_of(judged, constraints=fixed))
    assert result.plan is not None
    assert result.certificate is not None
    shares = {layers.offload.optimizer.cpu for layers in result.plan.stages[0].chunks[0].layers}
    assert shares == {0.5}
    assert result.certificate.dimensions["offload"] == "fixed by user"


@pytest.mark.parametrize(
    ("fixed", "pointer", "nearest"),
    [
        ({"tensor_parallel": 3}, "/constraints/fixed/tensor_parallel", 2),
        ({"context_parallel": 5}, "/constraints/fixed/context_parallel", 4),
        ({"data_parallel": 64}, "/constraints/fixed/data_parallel", None),
        ({"zero_stage": 2, "tensor_parallel": 7}, "/constraints/fixed/tensor_parallel", 8),
        ({"schedule": "gpipe"}, "/constraints/fixed/schedule", "1f1b"),
    ],
)
def test_an_illegal_fixed_choice_is_refused_with_the_nearest_legal_ones(
    fixed: dict[str, object], pointer: str, nearest: object
) -> None:
    judged = setting(model="gpt-2-355m", cluster="a100-sxm-80gb", sequence_length=1024)
    with pytest.raises(IllegalChoice) as refused:
        plan_training(request_of(judged, constraints=Constraints(fixed=fixed)))
    assert refused.value.pointer == pointer
    if nearest is not None:
        assert nearest in refused.value.nearest_legal


def test_a_share_that_the_framework_cannot_keep_on_the_host_is_refused_by_its_rule() -> None:
    judged = small(framework="nanotron", num_devices=2, num_layers=2, batch=2)
    fixed = Constraints(fixed={"offload": {"optimizer": 0.5}})
    with pytest.raises(IllegalChoice) as refused:
        plan_training(request_of(judged, constraints=fixed))
    assert refused.value.pointer == "/constraints/fixed/offload/optimizer"
    assert refused.value.nearest_legal == (0.0,)


def test_an_unknown_decision_is_refused_by_name() -> None:
    judged = small(framework="any", num_devices=2, num_layers=2, batch=2)
    with pytest.raises(InvalidRequest) as refused:
        plan_training(request_of(judged, constraints=Constraints(fixed={"tensor_paralel": 2})))
    assert refused.value.nearest_legal[0] == "tensor_parallel"


def test_fixed_choices_are_kept_and_reported() -> None:
    judged = small(framework="megatron-core", num_devices=8, num_layers=8, batch=16)
    fixed = {"pipeline_parallel": 4, "micro_batch_size": 2}
    result = plan_training(request_of(judged, constraints=Constraints(fixed=fixed)))
    assert result.plan is not None
    assert result.certificate is not None
    assert result.plan.mesh.pipeline_parallel == 4
    assert result.plan.batch.micro_batch_size == 2
    assert result.certificate.dimensions["pipeline_parallel"] == "fixed by user"


def test_progress_is_reported_and_bounds_never_fall() -> None:
    seen: list[Progress] = []
    plan_training(
        request_of(small(framework="megatron-core", num_devices=8, num_layers=8, batch=16)),
        progress=seen.append,
    )
    bounds = [entry.lower_bound_seconds for entry in seen]
    assert bounds == sorted(bounds)
    assert seen[-1].best_seconds is not None


def test_a_search_without_time_says_unknown() -> None:
    request = request_of(small(framework="megatron-core", num_devices=8, num_layers=8, batch=16))
    hurried = replace(request, solver=replace(request.solver, time_limit_seconds=1e-9))
    assert plan_training(hurried).status is Status.UNKNOWN


def test_a_search_over_several_node_groups_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest) as refused:
        plan_training(request_on(generations()))
    assert '{"fixed": {"node_group": "a100-sxm-80gb"}}' in refused.value.message
    assert refused.value.pointer == "/cluster/node_groups"
    assert refused.value.nearest_legal == ("a100-sxm-80gb", "h100-sxm")


def test_a_search_takes_the_node_group_that_is_picked() -> None:
    pair = generations(8)
    picked = plan_training(request_on(pair, constraints=Constraints(fixed={"node_group": "h100-sxm"})))
    alone = plan_training(request_on(pair.only("h100-sxm")))
    assert picked.plan == alone.plan
    assert picked.prediction == alone.prediction
    assert picked.certificate is not None
    assert picked.certificate.dimensions["node_group"] == "fixed by user"
    assert picked.plan is not None
    again = evaluate_plan(request_on(pair), picked.plan)
    assert again.plan == picked.plan
    assert again.prediction == picked.prediction


def test_a_node_group_that_is_not_there_cannot_be_picked() -> None:
    constraints = Constraints(fixed={"node_group": "b200"})
    with pytest.raises(UnknownName) as refused:
        plan_training(request_on(generations(), constraints=constraints))
    assert refused.value.pointer == "/constraints/fixed/node_group"
    assert refused.value.nearest_legal == ("a100-sxm-80gb", "h100-sxm")


def test_a_plan_over_two_generations_evaluates_to_the_same_prediction_in_its_full_form() -> None:
    request = request_on(generations())
    short = evaluate_plan(request, ShortPlan(tensor_parallel=4, pipeline_parallel=4, virtual_stages=2))
    assert short.plan is not None
    assert short.prediction is not None
    groups = [stage.node_group for stage in short.prediction.memory]
    assert groups == ["a100-sxm-80gb"] * 2 + ["h100-sxm"] * 2
    assert [stage.placement[0].node_group for stage in short.plan.stages] == groups
    assert len({stage.capacity_bytes for stage in short.prediction.memory}) == 2
    assert [host.node_group for host in short.prediction.host] == ["a100-sxm-80gb", "h100-sxm"]
    full = evaluate_plan(request, short.plan)
    assert full.plan == short.plan
    assert full.prediction == short.prediction
    assert plan_timeline(request, short.plan)


def test_the_parts_of_a_step_over_two_generations_add_up() -> None:
    for framework in ("megatron-core", "pytorch"):
        prediction = evaluate_plan(
            request_on(generations(), framework=framework), ShortPlan(pipeline_parallel=4, data_parallel=8)
        ).prediction
        assert prediction is not None
        parts = prediction.breakdown_seconds
        whole = sum(getattr(parts, name) for name in parts.__dataclass_fields__)
        assert whole == pytest.approx(prediction.step_time_seconds)


def test_a_flat_plan_may_name_one_of_the_groups() -> None:
    request = request_on(generations())
    result = evaluate_plan(request, ShortPlan(tensor_parallel=2, node_group="h100-sxm"))
    assert result.plan is not None
    assert result.plan.mesh.data_parallel == 8
    assert [stage.placement[0].node_group for stage in result.plan.stages] == ["h100-sxm"]
    assert result.warnings == ("the plan uses 16 of 32 devices",)


def test_a_stage_that_no_group_holds_is_illegal() -> None:
    result = evaluate_plan(request_on(generations()), ShortPlan(tensor_parallel=4, data_parallel=8))
    assert result.status is Status.ILLEGAL
    assert [violation.nearest_legal for violation in result.violations] == [(4,)]


def test_gpipe_is_legal_where_the_framework_has_it() -> None:
    judged = small(framework="pytorch", num_devices=2, num_layers=4, batch=4)
    schedule = Schedule(name=ScheduleName.GPIPE)
    result = evaluate_plan(request_of(judged), ShortPlan(pipeline_parallel=2, schedule=schedule))
    assert result.status is Status.FITS


def test_the_best_set_of_modules_is_found_and_evaluates_to_the_same_prediction() -> None:
    judged = setting(
        model="deepseek-v2-lite", num_layers=3, num_devices=4, global_batch_size=32, sequence_length=4096
    )

    def asked(**fixed: object) -> PlanRequest:
        # Memory binds: without recomputation stages keep smaller micro-batches.
        limits = Constraints(memory_fraction=0.16, forbid=("offload",), fixed=fixed)
        return request_of(judged, constraints=limits)

    result = best_plan(asked())
    assert result.certificate is not None
    assert result.plan is not None
    layers = [layer for stage in result.plan.stages for chunk in stage.chunks for layer in chunk.layers]
    modes = {layer.recompute for layer in layers if layer.kind == "decoder"}
    assert [mode.mode for mode in modes] == [RecomputeMode.SELECTIVE]
    evaluated = evaluate_plan(asked(), result.plan).prediction
    assert evaluated is not None
    assert evaluated.step_time_seconds == result.certificate.value
    others = [RecomputeMode.NONE, RecomputeMode.FULL, *module_sets(judged)[:2]]
    for other in others:
        rival = best_plan(asked(recompute=other)).certificate
        assert rival is not None
        assert rival.value > result.certificate.value
