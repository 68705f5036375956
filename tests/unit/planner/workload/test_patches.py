from dataclasses import replace

import pytest

from planner.workload.layers import Cut
from planner.workload.operators import MatrixProduct
from planner.workload.patches import PatchLayer
from planner.workload.recomputation import saved_bytes
from planner.workload.streams import ImageStream

IMAGES = ImageStream(image_size=224, patch_size=16, extra_tokens=1)
VIT = PatchLayer(hidden=768, stream=IMAGES, positions=197, class_token=True)
CUT = Cut(micro_batch_size=2, sequence_length=64, tensor_parallel=4, sequence_parallel=True)
KERNEL = 3 * 16 * 16


@pytest.mark.parametrize(
    ("layer", "rows"),
    [
        (VIT, KERNEL + 1 + 197 + 1),
        (replace(VIT, bias=False, positions=0, class_token=False), KERNEL),
        (replace(VIT, frames=2), 2 * KERNEL + 1 + 197 + 1),
    ],
)
def test_patches_count_kernel_bias_positions_and_class_token(layer: PatchLayer, rows: int) -> None:
    assert layer.parameters == layer.local_parameters(CUT) == 768 * rows


def test_every_device_makes_all_tokens_of_all_images() -> None:
    layer = replace(VIT, stream=replace(IMAGES, images=3))
    product, positions = layer.operators(CUT)
    assert isinstance(product, MatrixProduct)
    assert (product.rows, product.columns, product.inner) == (2 * 3 * 196, 768, KERNEL)
    assert positions.name == "patch_positions"
    assert product.forward_flops == 2 * layer.forward_flops_per_sample(64)


def test_pixels_are_saved_and_a_dropout_keeps_its_mask() -> None:
    assert saved_bytes(VIT.operators(CUT)) == 2 * 2 * 196 * KERNEL
    masked = replace(VIT, dropout=0.1)
    assert saved_bytes(masked.operators(CUT)) - saved_bytes(VIT.operators(CUT)) == 2 * 197 * 768


def test_without_images_nothing_runs() -> None:
    assert replace(VIT, stream=replace(IMAGES, images=0)).operators(CUT) == ()


@pytest.mark.parametrize(("name", "value"), [("hidden", 0), ("frames", -1), ("positions", -1), ("bias", 2)])
def test_nonsense_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        replace(VIT, **{name: value})  # type: ignore[arg-type]  # what is wrong is the point
