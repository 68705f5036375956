"""Mixtures of experts that a framework does not train, or not spread so."""

import pytest

from planner.frameworks import framework_by_name
from planner.rules.experts import RULES
from planner.rules.rule import Outcome
from planner.strategy import Mesh, ZeroStage
from tests.unit.planner.rules.cases import DENSE, EXPERTS, Case, breaks, check

CASES = (
    Case(
        rule="no-expert-parallel",
        framework="pytorch",
        model=EXPERTS,
        broken={"mesh": Mesh(data_parallel=8, expert_parallel=8)},
        pointer="/plan/expert_parallel",
        nearest=1,
        kept={"mesh": Mesh(data_parallel=8)},
    ),
    Case(
        rule="expert-ranks",
        framework="maxtext",
        model=EXPERTS,
        broken={"mesh": Mesh(data_parallel=2, context_parallel=4, expert_parallel=4)},
        pointer="/plan/expert_parallel",
        nearest=2,
        kept={"mesh": Mesh(data_parallel=8, expert_parallel=4)},
    ),
    Case(
        rule="expert-ranks",
        framework="torchtitan",
        model=EXPERTS,
        broken={"mesh": Mesh(data_parallel=8, expert_parallel=8)},
        pointer="/plan/expert_parallel",
        nearest=1,
        kept={
            "mesh": Mesh(data_parallel=8, expert_parallel=8),
            "zero_stage": ZeroStage.PARAMETERS,
        },
    ),
    Case(
        rule="expert-tensor-parallel",
        framework="torchtitan",
        model=EXPERTS,
        broken={
            "mesh": Mesh(data_parallel=4, tensor_parallel=2, expert_parallel=4, expert_tensor_parallel=2)
        },
        pointer="/plan/expert_tensor_parallel",
        nearest=1,
        kept={"mesh": Mesh(data_parallel=4, tensor_parallel=2, expert_tensor_parallel=2)},
    ),
    Case(
        rule="expert-tensor-parallel",
        framework="megatron-core",
        version="0.9",
        model=EXPERTS,
        broken={"mesh": Mesh(data_parallel=4, tensor_parallel=2, sequence_parallel=True)},
        pointer="/plan/expert_tensor_parallel",
        nearest=2,
        kept={
            "mesh": Mesh(data_parallel=4, tensor_parallel=2, sequence_parallel=True, expert_tensor_parallel=2)
        },
    ),
    Case(
        rule="experts-with-sequence-parallel",
        framework="megatron-core",
        model=EXPERTS,
        broken={"mesh": Mesh(tensor_parallel=2)},
        pointer="/plan/sequence_parallel",
        nearest=True,
        kept={"mesh": Mesh(tensor_parallel=2, sequence_parallel=True)},
    ),
    Case(
        rule="experts-with-pipeline",
        framework="megatron-deepspeed",
        model=EXPERTS,
        broken={"mesh": Mesh(pipeline_parallel=2)},
        pointer="/plan/pipeline_parallel",
        nearest=1,
        kept={"mesh": Mesh(data_parallel=2)},
    ),
    Case(
        rule="experts-with-zero-stage",
        framework="deepspeed",
        version="0.18",
        model=EXPERTS,
        broken={
            "mesh": Mesh(data_parallel=8, expert_parallel=8),
            "zero_stage": ZeroStage.PARAMETERS,
        },
        pointer="/plan/zero_stage",
        nearest=2,
        # Experts that every rank has are parameters like others.
        kept={"mesh": Mesh(data_parallel=8), "zero_stage": ZeroStage.PARAMETERS},
    ),
    Case(
        rule="experts-with-tensor-and-zero-stage",
        framework="deepspeed",
        model=EXPERTS,
        broken={
            "mesh": Mesh(data_parallel=4, tensor_parallel=2, expert_parallel=4),
            "zero_stage": ZeroStage.PARAMETERS,
        },
        pointer="/plan/zero_stage",
        nearest=2,
        kept={
            "mesh": Mesh(data_parallel=8, expert_parallel=4),
            "zero_stage": ZeroStage.PARAMETERS,
        },
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layout_that_breaks_a_rule_is_told_the_nearest_that_keeps_it(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_model_without_experts_breaks_none_of_these_rules(case: Case) -> None:
    dense = Case(
        rule=case.rule,
        framework=case.framework,
        version=case.version,
        model=DENSE,
        broken={},
        pointer="",
        nearest=None,
        kept={},
    )
    without = {**case.broken, "mesh": Mesh(data_parallel=8, tensor_parallel=2, pipeline_parallel=2)}
    assert breaks(dense, without) == []


def test_a_framework_without_experts_trains_none() -> None:
    case = Case(
        rule="no-experts",
        framework="nanotron",
        model=EXPERTS,
        broken={},
        pointer="/job/framework",
        nearest="megatron-core",
        kept={},
    )
    (violation,) = breaks(case, {"mesh": Mesh(data_parallel=8)})
    assert violation.pointer == case.pointer
    assert case.nearest in violation.nearest_legal
    assert "nanotron" not in violation.nearest_legal


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} | {"no-experts"} == {rule.name for rule in RULES}


def test_ranks_that_no_parser_checks_are_wrong_in_silence() -> None:
    rule = next(rule for rule in RULES if rule.name == "expert-ranks")
    outcomes = {name: rule.outcome(framework_by_name(name)) for name in ("torchtitan", "maxtext")}
    assert outcomes == {"torchtitan": Outcome.SILENT, "maxtext": Outcome.REFUSED}
