import pytest

from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Cut
from planner.workload.operators import AttentionCore
from planner.workload.presets import preset_workload
from planner.workload.samples import has_sequence, with_samples

LLAVA = workload_from_config({"model_type": "llava"})
T5 = workload_from_config({"model_type": "t5"})
CUT = Cut(micro_batch_size=1, sequence_length=512)


def vision_flops(images: int, image_size: int | None = None) -> float:
    workload = with_samples(LLAVA, images=images, image_size=image_size)
    vision = [run for run in workload.runs if run.layer.kind in {"vision", "projector"}]
    return sum(run.count * run.layer.forward_flops_per_sample(2048) for run in vision)


def test_more_images_are_as_much_more_work_and_none_are_none() -> None:
    assert vision_flops(3) == 3 * vision_flops(1)
    assert vision_flops(0) == 0


def test_larger_images_have_more_tokens_and_the_same_parameters() -> None:
    assert vision_flops(1, image_size=672) > 4 * vision_flops(1)
    assert with_samples(LLAVA, image_size=672).parameters == LLAVA.parameters


def test_the_text_is_as_it_was() -> None:
    changed = with_samples(LLAVA, images=5)
    assert changed.layer("decoder") == LLAVA.layer("decoder")
    assert changed.count("decoder") == LLAVA.count("decoder")


def test_the_decoders_side_gets_its_own_length() -> None:
    workload = with_samples(T5, target_length=128)
    decoder, encoder = workload.layer("decoder"), workload.layer("encoder")
    cores = [op for op in decoder.operators(CUT) if isinstance(op, AttentionCore)]
    assert [(core.query_length, core.key_length) for core in cores] == [(128, 128), (128, 512)]
    assert encoder == T5.layer("encoder")
    assert workload.layer("head").forward_flops_per_sample(512) == 2 * 128 * 512 * 32128


def test_what_is_not_said_stays() -> None:
    assert with_samples(T5) == T5
    assert with_samples(LLAVA) == LLAVA


def test_images_of_another_size_make_larger_maps_and_no_more_parameters() -> None:
    resnet = preset_workload("resnet-50")
    larger = with_samples(resnet, image_size=448)
    assert larger.parameters == resnet.parameters
    convolutions = 4.0 * (resnet.forward_flops_per_sample(1) - 2 * 2048 * 1000)
    assert larger.forward_flops_per_sample(1) == convolutions + 2 * 2048 * 1000


def test_vectors_have_neither_a_sequence_nor_a_size() -> None:
    recommendation = preset_workload("dlrm-criteo-1tb")
    assert not has_sequence(recommendation)
    assert with_samples(recommendation, images=1, image_size=64, target_length=3) == recommendation


@pytest.mark.parametrize("numbers", [{"images": -1}, {"image_size": -3}])
def test_nonsense_is_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="image"):
        with_samples(LLAVA, **numbers)


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("vit", False),
        ("resnet", False),
        ("efficientnet", False),
        ("llava", True),
        ("t5", True),
        ("llama", True),
    ],
)
def test_a_classifier_of_images_alone_has_no_sequence(family: str, expected: bool) -> None:  # noqa: FBT001
    assert has_sequence(workload_from_config({"model_type": family})) is expected
