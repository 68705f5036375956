"""Shardings that a framework lacks, alone and beside other axes."""

from dataclasses import replace

import pytest

from planner.rules.rule import Proposal
from planner.rules.sharding import RULES
from planner.strategy import Mesh, Sharding, ZeroStage
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
    ("framework", "state", "is_legal"),
    [
        ("megatron-core", "optimizer", True),
        ("nanotron", "optimizer", False),
        ("deepspeed", "parameters", True),
        ("deepspeed", "optimizer", False),
    ],
)
def test_some_frameworks_share_a_state_between_all_replicas_or_none(
    framework: str, state: str, *, is_legal: bool
) -> None:
    judged = setting(framework=framework)
    whole = layout(judged, mesh=Mesh(data_parallel=8))
    sharding = {"parameters": Sharding(parameters=4), "optimizer": Sharding(optimizer=4)}[state]
    parted = replace(whole, sharding=sharding)
    rule = next(rule for rule in RULES if rule.name == "shard-groups")
    (found, broken) = (list(rule.check(Proposal(setting=judged, layout=one))) for one in (whole, parted))
    assert found == []
    assert (broken == []) is is_legal
    assert is_legal or broken[0].nearest_legal == (1, 8)
