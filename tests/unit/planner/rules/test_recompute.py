"""Recomputation that a framework does not have."""

import pytest

from planner.framework import SELECTIVE_RECOMPUTE
from planner.rules.recompute import RULES
from planner.strategy import Mesh, Recompute, RecomputeMode
from tests.unit.planner.rules.cases import Case, check

FULL = Recompute(mode=RecomputeMode.FULL)


def selective(*modules: str) -> Recompute:
    return Recompute(mode=RecomputeMode.SELECTIVE, modules=modules)


CASES = (
    Case(
        rule="recompute-modes",
        framework="torchtitan",
        broken={"mesh": Mesh(), "recompute": SELECTIVE_RECOMPUTE},
        pointer="/plan/recompute",
        nearest="full",
        kept={"mesh": Mesh(), "recompute": FULL},
    ),
    Case(
        rule="recompute-modules",
        framework="megatron-core",
        broken={"mesh": Mesh(), "recompute": selective("layer_norm")},
        pointer="/plan/recompute",
        nearest="layernorm",
        kept={"mesh": Mesh(), "recompute": selective("layernorm", "norm", "mlp")},
    ),
    Case(
        rule="recompute-modules",
        framework="megatron-core",
        version="0.11",
        broken={"mesh": Mesh(), "recompute": selective("mlp")},
        pointer="/plan/recompute",
        nearest="core_attn",
        kept={"mesh": Mesh(), "recompute": selective("core_attention")},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layout_that_breaks_a_rule_is_told_the_nearest_that_keeps_it(case: Case) -> None:
    check(case)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == {rule.name for rule in RULES}
