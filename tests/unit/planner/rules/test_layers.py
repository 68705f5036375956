"""Layers that a framework does not spread so over the chunks of a pipeline."""

import pytest

from planner.frameworks import framework_by_name
from planner.rules.layers import RULES, comes_out, usual_split
from planner.rules.rule import Outcome
from planner.strategy import Mesh, Schedule, ScheduleName
from tests.unit.planner.rules.cases import Case, breaks, check, layout
from tests.unit.planner.settings import setting

FOUR_STAGES = Mesh(pipeline_parallel=4)
TURNS = Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=3)
CASES = (
    Case(
        rule="layers-per-chunk",
        framework="maxtext",
        broken={"mesh": FOUR_STAGES, "layers": (7, 9, 9, 7)},
        pointer="/plan/layers_per_stage",
        nearest=[8, 8, 8, 8],
        kept={"mesh": FOUR_STAGES, "layers": (8, 8, 8, 8)},
    ),
    Case(
        rule="layers-per-chunk",
        framework="megatron-core",
        version="0.12",
        broken={"mesh": FOUR_STAGES, "layers": (7, 8, 10, 7)},
        pointer="/plan/layers_per_stage",
        nearest=[8, 8, 8, 8],
        kept={"mesh": FOUR_STAGES, "layers": (7, 9, 9, 7)},
    ),
    Case(
        rule="layers-per-chunk",
        framework="megatron-deepspeed",
        broken={"mesh": FOUR_STAGES, "layers": (6, 10, 10, 6)},
        pointer="/plan/layers_per_stage",
        nearest=[8, 8, 8, 8],
        kept={"mesh": FOUR_STAGES, "layers": (7, 8, 8, 7)},
    ),
    Case(
        rule="even-layers",
        framework="megatron-core",
        broken={"mesh": Mesh(pipeline_parallel=6)},
        pointer="/plan/pipeline_parallel",
        nearest=8,
        kept={"mesh": Mesh(pipeline_parallel=6), "layers": (5, 5, 6, 6, 5, 5)},
    ),
    Case(
        rule="even-layers",
        framework="megatron-core",
        version="0.12",
        broken={"mesh": FOUR_STAGES, "schedule": TURNS},
        pointer="/plan/virtual_stages",
        nearest=4,
        kept={"mesh": FOUR_STAGES},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layout_that_breaks_a_rule_is_told_the_nearest_that_keeps_it(case: Case) -> None:
    check(case)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == {rule.name for rule in RULES}


def test_old_releases_lose_layers_in_silence() -> None:
    rule = next(rule for rule in RULES if rule.name == "even-layers")
    assert rule.outcome(framework_by_name("megatron-core", version="0.12")) is Outcome.SILENT
    assert rule.outcome(framework_by_name("megatron-core")) is Outcome.REFUSED
    case = next(case for case in CASES if case.rule == "even-layers" and case.version == "0.12")
    assert "would build fewer" in breaks(case, case.broken)[0].rule


def test_nanotron_has_no_split_but_its_own() -> None:
    judged = setting(framework="nanotron")
    own = usual_split(judged, layout(judged, mesh=FOUR_STAGES))
    case = Case(
        rule="layers-per-chunk",
        framework="nanotron",
        broken={"mesh": FOUR_STAGES, "layers": (*own[:2], own[2] - 1, own[3] + 1)},
        pointer="/plan/layers_per_stage",
        nearest=list(own),
        kept={"mesh": FOUR_STAGES, "layers": own},
    )
    check(case)


def test_layers_that_do_not_come_out_are_answered_with_numbers_of_chunks() -> None:
    case = next(case for case in CASES if case.framework == "maxtext")
    (violation,) = breaks(case, {"mesh": Mesh(pipeline_parallel=6), "layers": (6, 6, 5, 5, 5, 5)})
    assert violation.nearest_legal == (4, 8, 16)


@pytest.mark.parametrize(
    ("framework", "num_chunks", "is_possible"),
    [("maxtext", 8, True), ("maxtext", 6, False), ("nanotron", 6, True), ("nanotron", 40, False)],
)
def test_layers_come_out_evenly_or_as_the_framework_wants(
    framework: str, num_chunks: int, *, is_possible: bool
) -> None:
    assert comes_out(framework_by_name(framework), num_layers=32, num_chunks=num_chunks) is is_possible
