"""What replicas send is searched with the caller's consent, and never beats its bounds or every plan."""

from dataclasses import replace
from typing import Any

import pytest

from planner.cluster import Cluster
from planner.cluster_presets import cluster_from_preset
from planner.errors import IllegalChoice
from planner.job import Constraints, Job, Precision, SolverLimits
from planner.plan import Result, Status
from planner.planning import PlanRequest, best_plan, evaluate_plan, plan_training, searched_space
from planner.profile import builtin_profile
from planner.search.dimensions import dimensions
from planner.search.meshes import by_mesh
from planner.units import NANOSECONDS_PER_SECOND
from planner.workload.huggingface import workload_from_config
from tests.unit.planner.exhaustive import best_of_every_plan
from tests.unit.planner.search.test_mesh_bounds import checked_ns, cost_model, floors_of, some_variants

CONSENT = ("quantized_communication",)
MODEL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1024,
}


def two_slow_nodes() -> Cluster:
    """Return two nodes of two devices, behind a network that a quarter of the bytes matters on."""
    (group,) = cluster_from_preset("a100-sxm-80gb", 16).node_groups
    inner, outer = group.levels
    levels = (replace(inner, devices=2), replace(outer, devices=4, bandwidth_bytes_per_second=1e9))
    return Cluster(name="slow", node_groups=(replace(group, num_nodes=2, devices_per_node=2, levels=levels),))


def request(
    framework: str,
    *,
    allow: tuple[str, ...] = CONSENT,
    precision: Precision = Precision.BF16,
    **fixed: Any,  # noqa: ANN401 - values of any choice
) -> PlanRequest:
    return PlanRequest(
        workload=workload_from_config(MODEL),
        cluster=two_slow_nodes(),
        job=Job(global_batch_size=4, sequence_length=256, framework=framework, precision=precision),
        constraints=Constraints(fixed=fixed, allow=allow, forbid=("offload",)),
        solver=SolverLimits(time_limit_seconds=600),
        profiles=(builtin_profile("a100-sxm-80gb/published"),),
    )


def seconds(result: Result) -> float:
    assert result.status is Status.OPTIMAL
    assert result.certificate is not None
    return result.certificate.value


def sharding(result: Result) -> Any:  # noqa: ANN401 - what a test looks into
    assert result.plan is not None
    return result.plan.sharding


SPREAD: dict[str, Any] = {
    "data_parallel": 4,
    "tensor_parallel": 1,
    "context_parallel": 1,
    "pipeline_parallel": 1,
}


@pytest.mark.parametrize(
    ("framework", "fixed", "sent"),
    [
        ("deepspeed", {"zero_stage": 3}, ("int8", "int4")),
        ("deepspeed", {"zero_stage": 3, "gather_dtype": "bf16"}, (None, "int4")),
        ("deepspeed", {"zero_stage": 3, "reduce_dtype": "bf16"}, ("int8", None)),
        ("deepspeed", {"zero_stage": 3, "reduce_dtype": "fp32"}, ("int8", "fp32")),
        ("megatron-core", {"zero_stage": 1}, (None, "bf16")),
        ("megatron-core", {"zero_stage": 3}, (None, "bf16")),
        ("pytorch", {"zero_stage": 3}, (None, "bf16")),
        ("any", {"zero_stage": 3, "sequence_parallel": False}, ("int8", "int4")),
    ],
)
def test_less_is_sent_over_a_slow_network_as_trying_every_plan_finds(
    framework: str, fixed: dict[str, Any], sent: tuple[str | None, str | None]
) -> None:
    asked = request(framework, **SPREAD, **fixed)
    found, tried = best_plan(asked), best_of_every_plan(asked)
    assert (sharding(found).gather_dtype, sharding(found).reduce_dtype) == sent
    assert round(seconds(found) * NANOSECONDS_PER_SECOND) == tried.makespan_ns


@pytest.mark.parametrize("framework", ["deepspeed", "any", "pytorch"])
def test_every_plan_is_tried_where_all_is_open(framework: str) -> None:
    asked = request(framework, micro_batch_size=1, pipeline_parallel=1, tensor_parallel=1)
    found, tried = best_plan(asked), best_of_every_plan(asked)
    assert round(seconds(found) * NANOSECONDS_PER_SECOND) == tried.makespan_ns


@pytest.mark.parametrize("framework", ["deepspeed", "megatron-core", "any", "pytorch"])
def test_no_plan_beats_the_bounds_of_what_it_sends(framework: str) -> None:
    asked = request(framework, **SPREAD, micro_batch_size=1, sequence_parallel=False)
    space = searched_space(asked)
    model = cost_model(asked, space)
    floors, sent = floors_of(list(by_mesh(space)), model), set()
    for variant, layouts in some_variants(asked):
        answers: dict[bool, list[int]] = {False: [], True: []}
        for layout in layouts:
            answer = checked_ns(space, model, layout)
            answers[layout.schedule.name.splits_backward] += [] if answer is None else [answer]
        sent |= {variant.sharding.gather_dtype, variant.sharding.reduce_dtype}
        for apart, own in answers.items():
            # Schedules that split backward passes choose from fewer modes, and may have no floor.
            if own and (variant, apart) in floors:
                assert floors[variant, apart] <= min(own), variant
    assert sent > {None}


def test_nothing_is_sent_otherwise_without_the_consent() -> None:
    for framework in ("deepspeed", "megatron-core", "pytorch", "any"):
        allowed, refused = request(framework, **SPREAD), request(framework, allow=(), **SPREAD)
        for meshes in by_mesh(searched_space(refused)):
            for chain in meshes.chains:
                assert {(way.sharding.gather_dtype, way.sharding.reduce_dtype) for way in chain} == {
                    (None, None)
                }
        assert seconds(best_plan(allowed)) <= seconds(best_plan(refused))


def test_a_fixed_format_takes_the_consent_and_a_framework_that_has_it() -> None:
    with pytest.raises(IllegalChoice) as caught:
        best_plan(request("deepspeed", allow=(), gather_dtype="int8"))
    assert (caught.value.pointer, caught.value.nearest_legal) == (
        "/constraints/fixed/gather_dtype",
        ("bf16",),
    )
    with pytest.raises(IllegalChoice) as caught:
        best_plan(request("deepspeed", reduce_dtype="int8"))
    assert caught.value.pointer == "/constraints/fixed/reduce_dtype"
    assert caught.value.nearest_legal == ("bf16", "int4", "fp32")
    # More than the default loses nothing.
    assert sharding(best_plan(request("deepspeed", allow=(), reduce_dtype="fp32"))).reduce_dtype == "fp32"


def test_formats_that_no_legal_plan_sends_in_are_named() -> None:
    with pytest.raises(IllegalChoice) as caught:
        plan_training(request("deepspeed", gather_dtype="int8", zero_stage=1))
    assert caught.value.pointer == "/constraints/fixed/gather_dtype"


def test_a_plan_that_sends_less_is_evaluated_as_it_was_planned() -> None:
    planned = plan_training(request("deepspeed", zero_stage=3, **SPREAD))
    assert planned.plan is not None
    assert planned.prediction is not None
    again = evaluate_plan(request("deepspeed"), planned.plan)
    assert again.prediction == planned.prediction
    plain = replace(planned.plan.sharding, gather_dtype=None, reduce_dtype=None)
    slower = evaluate_plan(request("deepspeed"), replace(planned.plan, sharding=plain))
    assert slower.prediction is not None
    assert slower.prediction.step_time_seconds > planned.prediction.step_time_seconds


def test_what_is_sent_is_explained_and_compared_with_the_default() -> None:
    found = plan_training(request("deepspeed", zero_stage=3, **SPREAD))
    said = {sentence.pointer: sentence.text for sentence in found.explanation}
    assert "zero_quantized_weights" in said["/plan/sharding/gather_dtype"]
    assert "int4" in said["/plan/sharding/reduce_dtype"]
    (plain,) = (each for each in found.alternatives if "Without quantized communication" in each.why)
    assert (plain.plan.sharding.gather_dtype, plain.plan.sharding.reduce_dtype) == (None, None)
    assert plain.prediction.step_time_seconds > seconds(found)


@pytest.mark.parametrize(
    ("framework", "fixed", "kept"),
    [
        ("deepspeed", {"zero_stage": 3, "reshard_after_forward": False}, True),
        ("pytorch", {"zero_stage": 3, "reshard_after_forward": False}, True),
        ("pytorch", {"zero_stage": 3}, True),
        ("any", {"zero_stage": 3, "reshard_after_forward": True}, False),
        # Nothing is sent twice where there is room to keep it.
        ("deepspeed", {"zero_stage": 3}, True),
        # Within a node they are gathered in no time.
        ("any", {"zero_stage": 3}, False),
    ],
)
def test_parameters_stay_gathered_where_that_is_fixed_or_quicker(
    framework: str,
    fixed: dict[str, Any],
    kept: bool,  # noqa: FBT001 - a parameter of a case
) -> None:
    asked = request(framework, allow=(), **SPREAD, **fixed)
    found, tried = best_plan(asked), best_of_every_plan(asked)
    assert sharding(found).reshard_after_forward is not kept
    assert round(seconds(found) * NANOSECONDS_PER_SECOND) == tried.makespan_ns


@pytest.mark.parametrize("reshards", [True, False])
def test_what_is_never_gathered_is_neither_kept_nor_freed(reshards: bool) -> None:  # noqa: FBT001
    """A ZeRO stage 2 whose parameters are whole goes with either; FSDP's, which gathers, with one."""
    for framework, stages in (("megatron-core", {0, 1, 2, 3}), ("pytorch", {0, 2, 3})):
        space = searched_space(request(framework, allow=(), reshard_after_forward=reshards, **SPREAD))
        found = {way.sharding for each in by_mesh(space) for chain in each.chains for way in chain}
        assert {sharding.reshard_after_forward for sharding in found} == {reshards}
        expected = stages - ({3} if framework == "megatron-core" and not reshards else set())
        expected -= {2} if framework == "pytorch" and reshards else set()
        assert {sharding.zero_stage.value for sharding in found} == expected


@pytest.mark.parametrize(
    ("framework", "allow", "gather", "reduction"),
    [
        ("deepspeed", (), "not allowed by user: int8", "not allowed by user: int4"),
        ("deepspeed", CONSENT, "searched: bf16, or int8", "searched: bf16, or int4"),
        ("megatron-core", CONSENT, "fixed by framework: bf16", "searched: fp32, or bf16"),
        ("nanotron", CONSENT, "fixed by framework: bf16", "fixed by framework: fp32"),
        ("torchtitan", CONSENT, "fixed by framework: bf16", "fixed by framework: fp32"),
    ],
)
def test_a_certificate_says_what_was_tried(
    framework: str, allow: tuple[str, ...], gather: str, reduction: str
) -> None:
    said = dimensions(searched_space(request(framework, allow=allow)))
    assert said["gather_dtype"].startswith(gather)
    assert said["reduce_dtype"].startswith(reduction)
