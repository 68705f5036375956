from collections import Counter
from dataclasses import fields, replace

import pytest

from planner.footprint import PLAIN, Footprint
from planner.footprints import (
    FOOTPRINT_EFFECTS,
    FOOTPRINTS,
    NEUTRAL_FOOTPRINT,
    WIDTHS,
    FootprintParameter,
    footprint_of,
)
from planner.frameworks import FRAMEWORKS
from planner.programs import PROGRAMS

PROGRAM_NAMES = {*FRAMEWORKS, *PROGRAMS}


def test_every_effect_is_explained() -> None:
    assert set(FOOTPRINT_EFFECTS) == {field.name for field in fields(Footprint)} == set(NEUTRAL_FOOTPRINT)
    assert set(FOOTPRINT_EFFECTS) > WIDTHS


@pytest.mark.parametrize("parameter", FOOTPRINTS, ids=lambda one: f"{one.program}-{one.effect}")
def test_a_parameter_belongs_to_a_program_and_says_what_it_rests_on(parameter: FootprintParameter) -> None:
    assert parameter.program in PROGRAM_NAMES
    assert parameter.effect in FOOTPRINT_EFFECTS
    assert parameter.rests_on
    assert parameter.value != parameter.neutral


def test_no_parameter_stands_twice() -> None:
    counts = Counter((parameter.program, parameter.effect) for parameter in FOOTPRINTS)
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("name", sorted(PROGRAM_NAMES))
def test_frameworks_and_programs_have_the_footprint_of_the_table(name: str) -> None:
    traits = PROGRAMS.get(name) or FRAMEWORKS[name]
    assert traits.footprint == footprint_of(name)


def test_a_program_has_the_values_of_its_base_where_it_has_none_of_its_own() -> None:
    parameters = (
        FootprintParameter(program="megatron-deepspeed", effect="buffer_bytes", value=4e9, rests_on="a run"),
        FootprintParameter(program="megatron-deepspeed", effect="state_error", value=0.1, rests_on="a run"),
        FootprintParameter(program="bigscience", effect="state_error", value=0.2, rests_on="a run"),
    )
    assert footprint_of("bigscience", parameters) == Footprint(buffer_bytes=4e9, state_error=0.2)
    assert footprint_of("nanotron", parameters) == PLAIN


def test_neutral_is_plain() -> None:
    assert replace(PLAIN, **NEUTRAL_FOOTPRINT) == PLAIN
