from collections import Counter
from dataclasses import fields, replace

import pytest

from planner.frameworks import FRAMEWORKS
from planner.pace import AS_MEASURED, ProgramPace
from planner.parameters import BASES, COMPILATIONS, EFFECTS, NEUTRAL, PARAMETERS, Parameter, lineage, pace_of
from planner.programs import PROGRAMS

PROGRAM_NAMES = {*FRAMEWORKS, *PROGRAMS}
NAMES = {*PROGRAM_NAMES, *COMPILATIONS}


def test_every_effect_is_explained() -> None:
    assert set(EFFECTS) == {field.name for field in fields(ProgramPace)} == set(NEUTRAL)


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda one: f"{one.program}-{one.effect}")
def test_a_parameter_belongs_to_a_program_and_says_what_it_rests_on(parameter: Parameter) -> None:
    assert parameter.program in NAMES
    assert parameter.effect in EFFECTS
    assert parameter.rests_on


def test_no_parameter_stands_twice() -> None:
    counts = Counter((parameter.program, parameter.effect) for parameter in PARAMETERS)
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("name", sorted(PROGRAM_NAMES))
def test_frameworks_and_programs_run_at_the_pace_of_the_table(name: str) -> None:
    traits = PROGRAMS.get(name) or FRAMEWORKS[name]
    assert traits.pace == pace_of(name)


@pytest.mark.parametrize("name", BASES)
def test_what_a_program_is_based_on_is_known(name: str) -> None:
    assert set(lineage(name)) <= PROGRAM_NAMES


def test_a_program_has_the_values_of_its_base_where_it_has_none_of_its_own() -> None:
    parameters = (
        Parameter(program="megatron-deepspeed", effect="products", value=1.5, rests_on="a run"),
        Parameter(program="megatron-deepspeed", effect="step_seconds", value=0.1, rests_on="a run"),
        Parameter(program="sailor", effect="products", value=2.0, rests_on="a run"),
    )
    assert pace_of("sailor", parameters) == ProgramPace(products=2.0, step_seconds=0.1)
    assert pace_of("nanotron", parameters) == AS_MEASURED


def test_neutral_is_as_measured() -> None:
    assert replace(AS_MEASURED, **NEUTRAL) == AS_MEASURED
