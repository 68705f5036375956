import pytest

from planner.validation.families import family_of
from planner.workload.passes import Norm


@pytest.mark.parametrize(
    ("model", "gated", "norm", "tied"),
    [
        ("GPT-h3072-L30", False, Norm.LAYER, True),
        ("gpt3-175B", False, Norm.LAYER, True),
        ("megatron-22B", False, Norm.LAYER, True),
        ("MPT-7b", False, Norm.LAYER, True),
        ("OPT-350M", False, Norm.LAYER, True),
        ("BLOOM-candidate-181B", False, Norm.LAYER, True),
        ("GPT-NeoX-20B", False, Norm.LAYER, False),
        ("Nemotron4 15b", False, Norm.LAYER, False),
        ("LLAMA3.1_405B", True, Norm.RMS, False),
        ("Meta-Llama-3-8B", True, Norm.RMS, False),
        ("llama-3.2-1b", True, Norm.RMS, True),
        ("Qwen2.5-32B", True, Norm.RMS, False),
        ("nanotron-llama-3B-MHA", True, Norm.RMS, True),
    ],
)
def test_a_name_says_the_habits_of_its_family(model: str, *, gated: bool, norm: Norm, tied: bool) -> None:
    family = family_of(model)
    assert family is not None
    assert (family.gated, family.norm, family.tied) == (gated, norm, tied)


@pytest.mark.parametrize(("model", "biased"), [("Qwen2-7B", True), ("Qwen3-8B", False)])
def test_the_longest_beginning_of_a_name_wins(model: str, *, biased: bool) -> None:
    family = family_of(model)
    assert family is not None
    assert family.qkv_bias is biased


@pytest.mark.parametrize("model", ["Nemotron-H 56b", "T5-11B", "DeepSeek-V3", "GDN-300M"])
def test_families_of_another_kind_say_what_is_missing(model: str) -> None:
    family = family_of(model)
    assert family is not None
    assert family.undescribed is not None


@pytest.mark.parametrize("model", ["", "in-house 7B"])
def test_a_name_that_says_nothing_has_no_family(model: str) -> None:
    assert family_of(model) is None
