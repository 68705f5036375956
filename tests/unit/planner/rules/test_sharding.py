"""Shardings that a framework lacks, alone and beside other axes."""

from dataclasses import replace
from typing import Any

import pytest

from planner.rules.rule import Proposal
from planner.rules.sharding import RULES
from planner.setting import Setting
from planner.strategy import Layout, Mesh, Sharding, Violation, ZeroStage
from tests.unit.planner.rules.cases import Case, check, layout
from tests.unit.planner.settings import setting

CASES = (
    Case(
        rule="zero-stages",
        framework="pytorch",
        broken={"mesh": Mesh(data_parallel=4), "zero_stage": ZeroStage.OPTIMIZER},
        pointer="/plan/zero_stage",
        nearest=2,
        kept={"mesh": Mesh(data_parallel=4), "zero_stage": ZeroStage.GRADIENTS},
    ),
    Case(
        rule="zero-stages",
        framework="megatron-core",
        version="0.11",
        broken={"mesh": Mesh(data_parallel=4), "zero_stage": ZeroStage.PARAMETERS},
        pointer="/plan/zero_stage",
        nearest=1,
        kept={"mesh": Mesh(data_parallel=4), "zero_stage": ZeroStage.OPTIMIZER},
    ),
    Case(
        rule="zero-stages-with-pipeline",
        framework="deepspeed",
        broken={
            "mesh": Mesh(data_parallel=4, pipeline_parallel=2),
            "zero_stage": ZeroStage.GRADIENTS,
        },
        pointer="/plan/zero_stage",
        nearest=1,
        kept={"mesh": Mesh(data_parallel=4), "zero_stage": ZeroStage.GRADIENTS},
    ),
    Case(
        rule="zero-stages-with-tensor-parallel",
        framework="deepspeed",
        version="0.18.9",
        broken={
            "mesh": Mesh(data_parallel=4, tensor_parallel=2),
            "zero_stage": ZeroStage.PARAMETERS,
        },
        pointer="/plan/zero_stage",
        nearest=2,
        kept={"mesh": Mesh(data_parallel=4), "zero_stage": ZeroStage.PARAMETERS},
    ),
    Case(
        rule="replicas-alone",
        framework="torchtitan",
        version="0.2",
        broken={"mesh": Mesh(data_parallel=4, tensor_parallel=2)},
        pointer="/plan/zero_stage",
        nearest=3,
        kept={"mesh": Mesh(data_parallel=4, tensor_parallel=2), "zero_stage": ZeroStage.PARAMETERS},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layout_that_breaks_a_rule_is_told_the_nearest_that_keeps_it(case: Case) -> None:
    check(case)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} | {"shard-groups"} == {rule.name for rule in RULES}


@pytest.mark.parametrize(
    ("framework", "groups", "is_legal"),
    [
        ("megatron-core", {"optimizer": 4}, True),
        ("megatron-core", {"parameters": 4, "gradients": 4, "optimizer": 4}, True),
        ("megatron-core", {"parameters": 4, "gradients": 4, "optimizer": 8}, True),
        ("megatron-core", {"parameters": 4, "gradients": 8, "optimizer": 8}, False),
        ("megatron-core", {"parameters": 2, "gradients": 4, "optimizer": 4}, False),
        ("pytorch", {"parameters": 4, "gradients": 4, "optimizer": 4}, True),
        ("pytorch", {"parameters": 4, "gradients": 4, "optimizer": 8}, False),
        ("nanotron", {"optimizer": 4}, False),
        ("deepspeed", {"parameters": 4, "gradients": 8, "optimizer": 8}, True),
        ("deepspeed", {"optimizer": 4}, False),
        ("any", {"parameters": 2, "gradients": 4, "optimizer": 8}, True),
    ],
)
def test_frameworks_share_some_states_between_groups_of_replicas(
    framework: str, groups: dict[str, Any], *, is_legal: bool
) -> None:
    judged = setting(framework=framework)
    whole = layout(judged, mesh=Mesh(data_parallel=8))
    broken = groups_that_break(judged, replace(whole, sharding=replace(Sharding(), **groups)))
    assert groups_that_break(judged, whole) == []
    assert (broken == []) is is_legal
    assert all(violation.nearest_legal == (1, 8) for violation in broken)


def test_all_context_parallel_ranks_are_in_a_group_where_they_share_too() -> None:
    judged = setting(framework="torchtitan")
    within = layout(judged, mesh=Mesh(data_parallel=2, context_parallel=4))
    for size, is_legal in ((2, False), (4, True), (8, True)):
        sharding = Sharding(parameters=size, gradients=size, optimizer=size)
        assert (groups_that_break(judged, replace(within, sharding=sharding)) == []) is is_legal


def groups_that_break(judged: Setting, given: Layout) -> list[Violation]:
    found = [rule for rule in RULES if rule.name == "shard-groups" and rule.binds(judged.framework)]
    return [violation for rule in found for violation in rule.check(Proposal(setting=judged, layout=given))]
