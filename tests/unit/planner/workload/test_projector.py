from dataclasses import replace

import pytest

from planner.workload.layers import Cut
from planner.workload.operators import MatrixProduct
from planner.workload.passes import Norm
from planner.workload.projector import ProjectorLayer
from planner.workload.recomputation import WHOLE_LAYER, saved_bytes
from planner.workload.streams import ImageStream

TWO_MAPS = ProjectorLayer(widths=(64, 128, 256), bias=True)
CUT = Cut(micro_batch_size=2, sequence_length=32)
TOKENS = 2 * 32


@pytest.mark.parametrize(
    ("layer", "parameters"),
    [
        (ProjectorLayer(widths=(64, 128)), 64 * 128),
        (TWO_MAPS, 64 * 128 + 128 + 128 * 256 + 256),
        (ProjectorLayer(widths=(64, 128), norm=Norm.RMS), 64 * 128 + 64),
        (ProjectorLayer(widths=(64, 128), norm=Norm.RMS, norm_width=16), 64 * 128 + 16),
        (ProjectorLayer(widths=(64, 128), output_norm=Norm.LAYER), 64 * 128 + 2 * 128),
    ],
)
def test_a_projector_has_its_maps_and_norms(layer: ProjectorLayer, parameters: int) -> None:
    assert layer.parameters == layer.local_parameters(CUT) == parameters


def test_an_activation_stands_between_maps() -> None:
    assert [op.name for op in TWO_MAPS.operators(CUT)] == [
        "projector_0",
        "projector_0_activation",
        "projector_1",
    ]
    assert len(replace(TWO_MAPS, activates_output=True).operators(CUT)) == 4


def test_maps_save_their_inputs_and_recomputation_leaves_the_first() -> None:
    operators = TWO_MAPS.operators(CUT)
    assert saved_bytes(operators) == 2 * TOKENS * (64 + 128 + 128)
    assert saved_bytes(operators, recompute=WHOLE_LAYER) == 2 * TOKENS * 64


def test_every_device_maps_its_own_tokens() -> None:
    cut = replace(CUT, tensor_parallel=4, sequence_parallel=True)
    (product,) = ProjectorLayer(widths=(64, 128)).operators(cut)
    assert isinstance(product, MatrixProduct)
    assert (product.rows, product.columns, product.inner) == (TOKENS // 4, 128, 64)


def test_images_count_for_its_work() -> None:
    images = ImageStream(image_size=56, patch_size=14, merge=2, images=2)
    layer = ProjectorLayer(widths=(64, 128), stream=images)
    assert layer.forward_flops_per_sample(7) == 2 * 2 * 4 * 64 * 128
    assert replace(layer, stream=replace(images, images=0)).operators(CUT) == ()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"widths": (64,)}, "widths .* at least two"),
        ({"widths": (64, 0)}, r"widths \(0\)"),
        ({"norm": "rms"}, "norm"),
        ({"norm_width": 0}, "norm_width"),
        ({"bias": None}, "bias"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(TWO_MAPS, **changes)  # type: ignore[arg-type]  # what is wrong is the point
