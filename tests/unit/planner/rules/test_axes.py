"""Axes that a framework lacks, orders that it does not know, and what each axis must divide in it."""

import pytest

from planner.rules.axes import RULES
from planner.strategy import Mesh, expert_order_beside
from tests.unit.planner.rules.cases import Case, check
from tests.unit.planner.settings import setting

DATA_INSIDE = ("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel")
PIPELINE_INSIDE = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
CASES = (
    Case(
        rule="axes",
        framework="composer",
        broken={"mesh": Mesh(tensor_parallel=2)},
        pointer="/plan/tensor_parallel",
        nearest=1,
        kept={"mesh": Mesh(data_parallel=2)},
    ),
    Case(
        rule="axes",
        framework="nanotron",
        broken={"mesh": Mesh(context_parallel=2)},
        pointer="/plan/context_parallel",
        nearest=1,
        kept={"mesh": Mesh(tensor_parallel=2, pipeline_parallel=2)},
    ),
    Case(
        rule="whole-heads",
        framework="megatron-core",
        version="0.15",
        broken={"mesh": Mesh(tensor_parallel=16)},
        pointer="/plan/tensor_parallel",
        nearest=8,
        kept={"mesh": Mesh(tensor_parallel=8)},
    ),
    Case(
        rule="even-vocabulary",
        framework="maxtext",
        model="gpt-2-124m",
        broken={"mesh": Mesh(tensor_parallel=2)},
        pointer="/plan/tensor_parallel",
        nearest=1,
        kept={"mesh": Mesh(data_parallel=2)},
        given={"sequence_length": 1024},
    ),
    Case(
        rule="rank-order",
        framework="megatron-core",
        broken={"mesh": Mesh(rank_order=DATA_INSIDE)},
        pointer="/plan/rank_order",
        nearest=list(PIPELINE_INSIDE),
        kept={"mesh": Mesh(rank_order=PIPELINE_INSIDE)},
    ),
    Case(
        rule="expert-rank-order",
        framework="megatron-core",
        model="mixtral-8x7b",
        broken={"mesh": Mesh(rank_order=PIPELINE_INSIDE)},
        pointer="/plan/expert_rank_order",
        nearest=list(expert_order_beside(PIPELINE_INSIDE)),
        kept={"mesh": Mesh()},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layout_that_breaks_a_rule_is_told_the_nearest_that_keeps_it(case: Case) -> None:
    check(case)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == {rule.name for rule in RULES}


def test_newer_releases_copy_heads_to_several_ranks() -> None:
    rule = next(rule for rule in RULES if rule.name == "whole-heads")
    assert rule.binds(setting(version="0.15").framework)
    assert not rule.binds(setting(version="0.16").framework)
