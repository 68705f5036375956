"""Schedules that a framework lacks, and numbers of micro-batches that they do not run with."""

from dataclasses import replace

import pytest

from planner.framework import FULL_RECOMPUTE
from planner.rules.pipeline import RULES, interleaving_fits, least_group
from planner.strategy import Batch, Mesh, Schedule, ScheduleName
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


@pytest.mark.parametrize(
    ("stages", "passes", "group"), [(8, 16, 8), (8, 12, 12), (8, 20, 10), (8, 30, 10), (4, 7, 7), (8, 7, 8)]
)
def test_chunks_take_turns_with_the_fewest_micro_batches_that_come_out_even(
    stages: int, passes: int, group: int
) -> None:
    assert least_group(stages=stages, passes=passes) == group


@pytest.mark.parametrize("passes", range(8, 64))
def test_groups_of_rounds_are_the_fewest_that_come_out_even(passes: int) -> None:
    """PyTorch runs micro-batches // pipeline_parallel rounds, of equally many micro-batches each."""
    mesh, batch = Mesh(pipeline_parallel=8), Batch(micro_batch_size=1, num_micro_batches=passes)
    group, rounds = least_group(stages=8, passes=passes), passes // 8
    assert interleaving_fits(mesh, batch, Schedule(virtual_stages=2, interleave_group_size=group))
    assert passes % rounds or group == passes // rounds
