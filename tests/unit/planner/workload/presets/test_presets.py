import pytest

from planner.errors import UnknownName
from planner.workload.presets import ALIASES, preset_names, preset_workload

# Counted by transformers 5.24 on the meta device from the same files; GPT-3 and the Megatron models
# from their formula 12 L h^2 (1 + 13/12h) + (V + s + 2) h as well.
PARAMETERS = {
    "gpt-2-124m": 124_439_808,
    "gpt-2-355m": 354_823_168,
    "gpt-2-774m": 774_030_080,
    "gpt-2-1.5b": 1_557_611_200,
    "gpt-3-175b": 174_615_846_912,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "megatron-22b": 22_074_273_792,
    "megatron-530b": 529_600_819_200,
    "megatron-1t": 1_008_038_758_400,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
}


def test_the_presets_are_these() -> None:
    assert preset_names() == tuple(sorted(PARAMETERS))


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_a_preset_has_the_true_number_of_parameters_and_is_understood_whole(
    name: str, parameters: int
) -> None:
    workload = preset_workload(name)
    assert workload.name == name
    assert workload.parameters == parameters
    assert workload.not_understood == ()


@pytest.mark.parametrize(
    ("name", "hidden", "layers"),
    [
        ("gpt-3-175b", 12288, 96),
        ("megatron-22b", 6144, 48),
        ("megatron-530b", 20480, 105),
        ("megatron-1t", 25600, 128),
    ],
)
def test_megatron_models_follow_their_formula(name: str, hidden: int, layers: int) -> None:
    formula = layers * (12 * hidden**2 + 13 * hidden) + (51200 + 2048 + 2) * hidden
    assert preset_workload(name).parameters == formula


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_an_alias_is_the_same_model(alias: str, name: str) -> None:
    assert preset_workload(alias) == preset_workload(name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("llama-3-8", "llama-3-8b"), ("Llama-3-70B", "llama-3-70b"), ("gpt2-124m", "gpt-2-124m"), ("", "gpt-2")],
)
def test_an_unknown_name_gets_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownName) as caught:
        preset_workload(name)
    assert caught.value.pointer == "/model/preset"
    assert caught.value.nearest_legal[0] == nearest


@pytest.mark.parametrize("name", ["../huggingface", "llama-3-8b.json", "llama-3-8b/", "/etc/passwd"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(UnknownName):
        preset_workload(name)
