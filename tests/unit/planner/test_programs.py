from dataclasses import replace

import pytest

from planner.errors import InvalidRequest, UnknownName
from planner.frameworks import FAMILIAR, FRAMEWORKS
from planner.programs import PROGRAMS, traits_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_a_known_framework_with_other_traits(name: str) -> None:
    program = PROGRAMS[name]
    assert program.name in FRAMEWORKS
    assert program != FRAMEWORKS[program.name]


def test_a_version_that_names_a_program_has_its_traits() -> None:
    assert traits_of("megatron-deepspeed", "sailor") is PROGRAMS["sailor"]
    assert traits_of("megatron-core", None) is FRAMEWORKS["megatron-core"]


def test_a_program_is_known_on_its_own_framework_alone() -> None:
    with pytest.raises(UnknownName) as refused:
        traits_of("nanotron", "sailor")
    assert refused.value.pointer == "/job/framework_version"
    assert refused.value.nearest_legal == FRAMEWORKS["nanotron"].versions


def test_a_compiler_fuses_the_passes_of_layers_and_keeps_less_of_them() -> None:
    eager, compiled = (traits_of("composer", None, compiled=compiled) for compiled in (False, True))
    assert compiled.pace.memory_passes == 1.0 < eager.pace.memory_passes
    assert compiled.pace.data_parallel == eager.pace.data_parallel
    assert compiled.kept == replace(
        eager.kept, upcast_norms=False, activation_outputs=False, upcast_softmax=False
    )


@pytest.mark.parametrize("name", ["megatron-core", "megatron-bridge"])
def test_graphs_take_next_to_no_launches(name: str) -> None:
    usual, graphs = (traits_of(name, None, compiled=compiled) for compiled in (False, True))
    assert graphs.pace.launch_seconds < usual.pace.launch_seconds
    assert graphs.kept == usual.kept


def test_the_graphs_of_a_recipe_are_those_that_were_measured() -> None:
    assert traits_of("megatron-bridge", None, compiled=True).pace == PROGRAMS["megatron-bridge-graphs"].pace


def test_what_is_compiled_anyway_stays_so() -> None:
    assert traits_of("maxtext", None, compiled=True) == traits_of("maxtext", None)


def test_a_framework_that_does_not_compile_says_so() -> None:
    with pytest.raises(InvalidRequest) as refused:
        traits_of("nanotron", None, compiled=True)
    assert refused.value.pointer == "/job/compile"
    assert refused.value.nearest_legal == (False, None)


@pytest.mark.parametrize(
    ("name", "nearest"), [("FSDP", "pytorch"), ("megatron", "megatron-core"), ("deepspeeed", "deepspeed")]
)
def test_what_people_call_a_framework_leads_to_it(name: str, nearest: str) -> None:
    with pytest.raises(UnknownName) as refused:
        traits_of(name, None)
    assert refused.value.nearest_legal[0] == nearest


def test_familiar_names_lead_to_frameworks_that_are_known() -> None:
    assert {name for names in FAMILIAR.values() for name in names} <= FRAMEWORKS.keys()
    assert not FAMILIAR.keys() & (FRAMEWORKS.keys() | PROGRAMS.keys())
