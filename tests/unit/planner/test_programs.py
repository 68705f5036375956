import pytest

from planner.errors import UnknownName
from planner.frameworks import FRAMEWORKS
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
