import pytest

from planner.errors import UnknownName
from planner.workload.presets import ALIASES, preset_names, preset_workload

# Counted by transformers 5.24 on the meta device from the same files, without extra prediction layers;
# GPT-3 and the Megatron models from their formula 12 L h^2 (1 + 13/12h) + (V + s + 2) h as well.
PARAMETERS = {
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "bloom-176b": 176_247_271_424,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "dlrm-criteo-1tb": 187_767_399 * 128 + 2_368_897,
    "efficientnet-b0": 5_288_548,
    "efficientnet-b4": 19_341_616,
    "efficientnet-b7": 66_347_960,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2b": 2_506_172_416,
    "gemma-3-12b": 12_187_325_040,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_432_406_640,
    "gemma-3-4b": 4_300_079_472,
    "gemma-7b": 8_537_680_896,
    "glm-4.5": 352_797_814_784,
    "glm-4.5-air": 106_852_245_504,
    "gpt-2-1.5b": 1_557_611_200,
    "gpt-2-124m": 124_439_808,
    "gpt-2-355m": 354_823_168,
    "gpt-2-774m": 774_030_080,
    "gpt-3-175b": 174_615_846_912,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "jamba-v0.1": 51_570_323_328,
    "llama-1-13b": 13_015_864_320,
    "llama-1-30b": 32_528_943_616,
    "llama-1-65b": 65_285_660_672,
    "llama-1-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3-405b": 405_853_388_800,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "llama-4-maverick": 401_583_781_376,
    "llama-4-scout": 108_641_793_536,
    "llava-1.5-7b": 7_063_427_072,
    "mamba-130m": 129_135_360,
    "mamba-2.8b": 2_768_345_600,
    "megatron-1t": 1_008_038_758_400,
    "megatron-22b": 22_074_273_792,
    "megatron-530b": 529_600_819_200,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "mpt-30b": 29_957_200_896,
    "mpt-7b": 6_649_286_656,
    "nemotron-4-15b": 15_628_775_424,
    "nemotron-4-340b": 341_029_195_776,
    "nemotron-h-8b": 8_100_852_736,
    "opt-1.3b": 1_315_758_080,
    "opt-125m": 125_239_296,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "opt-350m": 331_196_416,
    "opt-6.7b": 6_658_473_984,
    "opt-66b": 65_719_701_504,
    "phi-3-medium-14b": 13_960_238_080,
    "phi-3-mini-3.8b": 3_821_079_552,
    "phi-4-14b": 14_659_507_200,
    "pythia-1.4b": 1_414_647_808,
    "pythia-12b": 11_846_072_320,
    "pythia-6.9b": 6_857_302_016,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-72b": 73_410_777_344,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-next-80b-a3b": 79_674_391_296,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
    "roberta-base": 124_697_433,
    "roberta-large": 355_412_057,
    "starcoder2-15b": 15_957_889_024,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "t5-11b": 11_307_321_344,
    "t5-3b": 2_851_598_336,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-small": 60_506_624,
    "vit-b-16": 86_567_656,
    "vit-h-14": 632_045_800,
    "vit-l-16": 304_326_632,
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


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Of the published checkpoints, which hold the extra layer with a copy of embedding and head, and
        # the routers' correction biases.
        ("glm-4.5", 358_337_791_296),
        ("glm-4.5-air", 110_468_824_832),
    ],
)
def test_extra_prediction_layers_are_as_large_as_published(name: str, published: int) -> None:
    workload = preset_workload(name)
    copies = 2 * workload.layer("embedding").parameters
    buffers = workload.buffers + workload.layer("mtp").buffers
    assert workload.parameters + workload.prediction_parameters + copies + buffers == published


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("deepseek-v2", 21),
        ("deepseek-v3", 37),
        ("glm-4.5", 32),
        ("gpt-oss-120b", 5.1),
        ("llama-4-maverick", 17),
        ("mixtral-8x7b", 12.9),
        ("qwen3-235b-a22b", 22),
        ("qwen3-next-80b-a3b", 3),
    ],
)
def test_as_many_parameters_are_active_as_published(name: str, billions: float) -> None:
    # What is published leaves out the embedding here, the head there, or a vision tower.
    assert preset_workload(name).active_parameters / 1e9 == pytest.approx(billions, abs=1.7)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # Multiply-adds of one image: He et al. (2016), table 1, whose stride sits in the first convolution
        # of a bottleneck (5 % less); Tan and Le (2019), table 2.
        ("resnet-18", 1.8),
        ("resnet-34", 3.6),
        ("resnet-50", 3.8),
        ("resnet-101", 7.6),
        ("resnet-152", 11.3),
        ("efficientnet-b0", 0.39),
        ("efficientnet-b4", 4.2),
        ("efficientnet-b7", 37),
    ],
)
def test_a_network_of_images_multiplies_as_often_as_published(name: str, billions: float) -> None:
    multiply_adds = preset_workload(name).forward_flops_per_sample(1) / 2
    assert multiply_adds / 1e9 == pytest.approx(billions, rel=0.08)


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_an_alias_is_the_same_model(alias: str, name: str) -> None:
    assert preset_workload(alias) == preset_workload(name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("llama-3-8", "llama-3-8b"),
        ("Llama-3-70B", "llama-3-70b"),
        ("gpt2-124m", "gpt-2-124m"),
        ("", "dlrm"),
    ],
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
