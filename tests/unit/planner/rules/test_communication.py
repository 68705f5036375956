"""Formats that a framework does not send in, and parameters that it does not keep gathered."""

from dataclasses import replace
from typing import Any

import pytest

from planner.communication import switches
from planner.job import BaseFormat, Precision, Trainable, TrainableKind
from planner.optimizers import OPTIMIZERS
from planner.rules.communication import RULES
from planner.rules.rule import Proposal
from planner.strategy import Mesh, Violation, ZeroStage
from tests.unit.planner.rules.cases import DENSE, EXPERTS, layout
from tests.unit.planner.settings import setting

ALONE = Mesh(data_parallel=64)
"""Eight nodes of eight devices."""


def broken(
    framework: str,
    *,
    mesh: Mesh = ALONE,
    zero_stage: int = 3,
    version: str | None = None,
    model: str = DENSE,
    job: dict[str, Any] | None = None,
    **sent: Any,  # noqa: ANN401 - values of a sharding
) -> list[Violation]:
    """Return what a sharding that sends so breaks."""
    judged = setting(model=model, framework=framework, version=version, num_devices=64)
    judged = replace(judged, job=replace(judged.job, **(job or {})))
    found = layout(judged, mesh=mesh, zero_stage=ZeroStage(zero_stage))
    sharded = replace(found, sharding=replace(found.sharding, **sent))
    proposal = Proposal(setting=judged, layout=sharded)
    return [violation for rule in RULES for violation in rule.check(proposal)]


@pytest.mark.parametrize(
    ("framework", "sent", "given", "nearest"),
    [
        ("deepspeed", {"gather_dtype": "int8"}, {"zero_stage": 1}, ("bf16",)),
        ("deepspeed", {"gather_dtype": "int4"}, {}, ("bf16", "int8")),
        ("deepspeed", {"gather_dtype": "int8"}, {"version": "0.18"}, ("bf16",)),
        ("deepspeed", {"reduce_dtype": "int4"}, {"zero_stage": 2}, ("bf16", "fp32")),
        ("deepspeed", {"reduce_dtype": "int8"}, {}, ("bf16", "int4", "fp32")),
        ("megatron-core", {"gather_dtype": "fp8"}, {}, ("bf16",)),
        (
            "megatron-core",
            {"gather_dtype": "fp8"},
            {"zero_stage": 0, "job": {"precision": Precision.FP8}},
            ("bf16",),
        ),
        ("megatron-core", {"reduce_dtype": "bf16"}, {"version": "0.16"}, ("fp32",)),
        ("pytorch", {"reduce_dtype": "bf16"}, {"zero_stage": 0}, ("fp32",)),
        ("torchtitan", {"reduce_dtype": "bf16"}, {}, ("fp32",)),
        ("nanotron", {"gather_dtype": "int8"}, {"zero_stage": 1}, ("bf16",)),
        ("any", {"reduce_dtype": "fp9"}, {}, ("fp32", "bf16", "int4")),
    ],
)
def test_a_format_is_refused_where_the_framework_does_not_send_in_it(
    framework: str, sent: dict[str, Any], given: dict[str, Any], nearest: tuple[str, ...]
) -> None:
    (violation,) = broken(framework, **given, **sent)
    (word,) = sent
    assert violation.pointer == f"/plan/sharding/{word}"
    assert violation.nearest_legal == nearest


@pytest.mark.parametrize(
    ("framework", "sent", "given"),
    [
        ("deepspeed", {"gather_dtype": "int8", "reduce_dtype": "int4"}, {}),
        ("deepspeed", {"gather_dtype": "int8"}, {"version": "0.18", "job": {"precision": Precision.FP16}}),
        ("deepspeed", {"reduce_dtype": "fp32"}, {"zero_stage": 1}),
        ("megatron-core", {"gather_dtype": "fp8"}, {"zero_stage": 1, "job": {"precision": Precision.FP8}}),
        ("megatron-core", {"reduce_dtype": "bf16"}, {"zero_stage": 0}),
        ("megatron-core", {"reduce_dtype": "bf16"}, {"version": "0.17"}),
        ("megatron-bridge", {"reduce_dtype": "fp32"}, {"zero_stage": 1}),
        ("pytorch", {"reduce_dtype": "bf16"}, {"zero_stage": 2}),
        ("pytorch", {"gather_dtype": "bf16", "reduce_dtype": "fp32"}, {"zero_stage": 0}),
        ("any", {"gather_dtype": "int8", "reduce_dtype": "int4"}, {}),
    ],
)
def test_a_format_goes_where_the_framework_sends_in_it(
    framework: str, sent: dict[str, Any], given: dict[str, Any]
) -> None:
    assert broken(framework, **given, **sent) == []


@pytest.mark.parametrize(
    ("mesh", "given"),
    [
        (Mesh(data_parallel=32, tensor_parallel=2), {}),
        (Mesh(data_parallel=8), {}),
        (Mesh(data_parallel=12), {}),
        (Mesh(data_parallel=64, expert_parallel=8), {"model": EXPERTS}),
        (ALONE, {"job": {"optimizer": OPTIMIZERS["muon"]}}),
    ],
    ids=["tensor parallel", "one node", "half a node", "experts", "muon"],
)
def test_exchanged_sums_take_all_ranks_of_several_whole_nodes(mesh: Mesh, given: dict[str, Any]) -> None:
    (violation,) = broken("deepspeed", mesh=mesh, reduce_dtype="int4", **given)
    assert violation.pointer == "/plan/sharding/reduce_dtype"
    assert violation.nearest_legal == ("bf16", "fp32")


def test_a_job_that_says_how_gradients_accumulate_says_how_they_are_reduced() -> None:
    job = {"gradient_dtype": Precision.FP32}
    (violation,) = broken("megatron-core", zero_stage=1, job=job, reduce_dtype="bf16")
    assert "gradient_dtype" in violation.rule
    # A format of what is sent alone is the plan's.
    assert broken("megatron-core", zero_stage=3, job=job, reduce_dtype="bf16") == []


def test_weights_that_rest_narrow_are_gathered_as_they_rest() -> None:
    narrow = Trainable(kind=TrainableKind.LORA, base_format=BaseFormat.NF4)
    (violation,) = broken("any", job={"trainable": narrow}, gather_dtype="int8")
    assert violation.nearest_legal == ("bf16",)
    # DeepSpeed gathers none of them.
    assert broken("deepspeed", job={"trainable": narrow}, gather_dtype="int8") == []


def test_parameters_stay_gathered_where_there_is_a_switch_for_it() -> None:
    (violation,) = broken("megatron-core", reshard_after_forward=False)
    assert violation.pointer == "/plan/sharding/reshard_after_forward"
    assert violation.nearest_legal == (True,)
    for framework in ("pytorch", "torchtitan", "deepspeed", "any"):
        assert broken(framework, reshard_after_forward=False) == []


def test_a_framework_is_told_in_its_own_words() -> None:
    judged = setting(model=DENSE, framework="deepspeed", num_devices=64)
    found = layout(judged, mesh=ALONE, zero_stage=ZeroStage.PARAMETERS).sharding
    sent = replace(found, gather_dtype="int8", reduce_dtype="bf16", reshard_after_forward=False)
    told = switches(judged, sent)
    assert told["gather_dtype"] == "zero_quantized_weights"
    assert "reduce_dtype" not in told
    assert "stage3_max_reuse_distance" in told["reshard_after_forward"]
