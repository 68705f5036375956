"""Schedules that a framework lacks, and numbers of micro-batches that they do not run with."""

from dataclasses import replace

import pytest

from planner.framework import FULL_RECOMPUTE
from planner.rules.pipeline import RULES
from planner.strategy import Mesh, Schedule, ScheduleName
from tests.unit.planner.rules.cases import Case, breaks, check

FOUR_STAGES = Mesh(pipeline_parallel=4)
ONE_AHEAD = Schedule(name=ScheduleName.ONE_FORWARD_ONE_BACKWARD)
GPIPE = Schedule(name=ScheduleName.GPIPE)
TURNS = Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=2)
APART = Schedule(name=ScheduleName.ZB_H1)
FOLDED = Schedule(name=ScheduleName.ZB_V, virtual_stages=2)
CASES = (
    Case(
        rule="schedules",
        framework="megatron-core",
        broken={"mesh": FOUR_STAGES, "schedule": GPIPE},
        pointer="/plan/schedule",
        nearest="1f1b",
        kept={"mesh": FOUR_STAGES, "schedule": ONE_AHEAD},
    ),
    Case(
        rule="schedules",
        framework="maxtext",
        broken={"mesh": FOUR_STAGES, "schedule": ONE_AHEAD},
        pointer="/plan/schedule",
        nearest="gpipe",
        # One stage alone accumulates gradients, whatever a pipeline would do.
        kept={"mesh": Mesh(data_parallel=4), "schedule": ONE_AHEAD},
    ),
    Case(
        rule="micro-batches-fill-stages",
        framework="maxtext",
        broken={"mesh": FOUR_STAGES, "passes": 2},
        pointer="/plan/num_micro_batches",
        nearest=4,
        kept={"mesh": FOUR_STAGES, "passes": 8},
    ),
    Case(
        rule="fewest-micro-batches",
        framework="pytorch",
        broken={"mesh": FOUR_STAGES, "passes": 2, "schedule": ONE_AHEAD},
        pointer="/plan/num_micro_batches",
        nearest=4,
        kept={"mesh": FOUR_STAGES, "passes": 2, "schedule": GPIPE},
    ),
    Case(
        rule="fewest-micro-batches",
        framework="nanotron",
        broken={"mesh": FOUR_STAGES, "passes": 2, "schedule": ONE_AHEAD},
        pointer="/plan/num_micro_batches",
        nearest=4,
        kept={"mesh": FOUR_STAGES, "passes": 3, "schedule": ONE_AHEAD},
    ),
    Case(
        rule="interleaved-groups",
        framework="megatron-core",
        broken={"mesh": FOUR_STAGES, "passes": 6, "schedule": TURNS},
        pointer="/plan/virtual_stages",
        nearest=1,
        kept={"mesh": FOUR_STAGES, "passes": 8, "schedule": TURNS},
    ),
    Case(
        rule="interleaved-fill-stages",
        framework="megatron-core",
        version="0.9",
        broken={"mesh": FOUR_STAGES, "passes": 6, "schedule": TURNS},
        pointer="/plan/num_micro_batches",
        nearest=4,
        kept={"mesh": FOUR_STAGES, "passes": 8, "schedule": TURNS},
    ),
    Case(
        rule="interleaved-fill-rounds",
        framework="pytorch",
        broken={"mesh": FOUR_STAGES, "passes": 9, "schedule": TURNS},
        pointer="/plan/num_micro_batches",
        nearest=8,
        kept={"mesh": FOUR_STAGES, "passes": 6, "schedule": TURNS},
    ),
    Case(
        rule="schedules",
        framework="megatron-core",
        broken={"mesh": FOUR_STAGES, "schedule": FOLDED},
        pointer="/plan/schedule",
        nearest="1f1b",
        kept={"mesh": FOUR_STAGES, "schedule": TURNS},
    ),
    Case(
        rule="zero-bubble-chunks",
        framework="torchtitan",
        broken={"mesh": FOUR_STAGES, "schedule": APART},
        pointer="/plan/virtual_stages",
        nearest=2,
        kept={"mesh": FOUR_STAGES, "schedule": replace(APART, virtual_stages=2)},
    ),
    Case(
        rule="zero-bubble-recompute",
        framework="pytorch",
        broken={"mesh": FOUR_STAGES, "schedule": APART, "recompute": FULL_RECOMPUTE},
        pointer="/plan/recompute",
        nearest="none",
        kept={"mesh": FOUR_STAGES, "schedule": ONE_AHEAD, "recompute": FULL_RECOMPUTE},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layout_that_breaks_a_rule_is_told_the_nearest_that_keeps_it(case: Case) -> None:
    check(case)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == {rule.name for rule in RULES}


def test_groups_outside_the_stages_and_micro_batches_are_no_matter_of_a_framework() -> None:
    case = next(case for case in CASES if case.rule == "interleaved-groups")
    outside = Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=2, interleave_group_size=2)
    assert breaks(case, {"mesh": FOUR_STAGES, "passes": 6, "schedule": outside}) == []
