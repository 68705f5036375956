from dataclasses import replace
from typing import Any

import pytest
import torch

from planner.workload.convolution import Convolution
from planner.workload.convolutional import ConvolutionalLayer
from planner.workload.feature_map import Activation
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Cut
from planner.workload.operators import MatrixProduct, MemoryPass
from planner.workload.recomputation import saved_bytes
from planner.workload.streams import ImageStream
from tests.unit.planner.workload.families.library import library_model

STREAM = ImageStream(image_size=64, patch_size=4)
CUT = Cut(micro_batch_size=2, sequence_length=1, element_bytes=4)
BOTTLENECK = ConvolutionalLayer(
    parts=(
        Convolution(inputs=64, outputs=16, activation=Activation.RELU),
        Convolution(inputs=16, outputs=16, kernel=3, stride=2, activation=Activation.RELU),
        Convolution(inputs=16, outputs=128),
    ),
    residual=True,
    shortcut=Convolution(inputs=64, outputs=128, stride=2),
    activation=Activation.RELU,
    stream=STREAM,
)


def test_a_block_counts_its_convolutions_its_shortcut_and_their_norms() -> None:
    weights = 64 * 16 + 16 * 16 * 9 + 16 * 128 + 64 * 128
    channels = 16 + 16 + 128 + 128
    assert BOTTLENECK.parameters == BOTTLENECK.local_parameters(CUT) == weights + 2 * channels
    assert BOTTLENECK.buffers == 2 * channels + 4


def test_its_flops_are_two_per_weight_and_position() -> None:
    before, after = 16 * 16 * 64 * 16, 8 * 8 * (16 * 16 * 9 + 16 * 128 + 64 * 128)
    assert BOTTLENECK.forward_flops_per_sample(7) == 2 * (before + after)


def test_the_input_is_saved_once_for_both_ways_to_the_sum() -> None:
    whole = saved_bytes(BOTTLENECK.operators(CUT))
    inner = 2 * 16 * (16 * 16 + 16 * 16 + 64 + 64)
    assert whole == 4 * (2 * 64 * 256 + inner + 2 * 2 * 128 * 64)


def test_it_hands_on_its_maps() -> None:
    assert BOTTLENECK.output_bytes(CUT) == 4 * 2 * 128 * 64
    assert (BOTTLENECK.stride, BOTTLENECK.inputs, BOTTLENECK.outputs) == (2, 64, 128)


def test_a_dropout_before_the_sum_keeps_its_mask() -> None:
    (sum_pass,) = (op for op in replace(BOTTLENECK, dropout=0.2).operators(CUT) if op.name == "residual")
    assert isinstance(sum_pass, MemoryPass)
    assert sum_pass.saved_bytes == 2 * 128 * 64


@pytest.mark.parametrize(("pixels", "has_gradient"), [(1, False), (2, True)])
def test_the_images_themselves_need_no_gradient(pixels: int, has_gradient: bool) -> None:  # noqa: FBT001
    layer = replace(BOTTLENECK, stream=replace(STREAM, patch_size=pixels))
    first, *others = (op for op in layer.operators(CUT) if isinstance(op, MatrixProduct))
    assert first.has_input_gradient is has_gradient
    assert all(op.has_input_gradient for op in others)


def test_without_images_there_is_nothing_to_do() -> None:
    assert replace(BOTTLENECK, stream=replace(STREAM, images=0)).operators(CUT) == ()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"parts": ()}, "parts"),
        ({"parts": (BOTTLENECK.parts[0], BOTTLENECK.parts[2], BOTTLENECK.parts[0])}, "parts"),
        ({"shortcut": None}, "residual"),
        ({"shortcut": Convolution(inputs=64, outputs=128)}, "shortcut"),
        ({"residual": False}, "shortcut"),
        ({"activation": "gelu"}, "activation"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        replace(BOTTLENECK, **changes)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "resnet"},
        {"model_type": "resnet", "layer_type": "basic", "hidden_sizes": [64, 128, 256, 512]},
        {"model_type": "resnet", "hidden_act": "silu", "downsample_in_bottleneck": True},
        {
            "model_type": "efficientnet",
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "hidden_dim": 1280,
            "image_size": 224,
        },
    ],
    ids=str,
)
def test_a_network_saves_what_autograd_saves(config: dict[str, Any]) -> None:
    workload = workload_from_config(config)
    ours = sum(run.count * saved_bytes(run.layer.operators(CUT)) for run in workload.runs)
    # Two numbers per channel of every norm, and maps that padding copies, are left out.
    assert ours == pytest.approx(bytes_that_autograd_saves(config, images=2), rel=0.025)


def bytes_that_autograd_saves(config: dict[str, Any], *, images: int) -> int:
    """Return the bytes of all activations that the library's model keeps for backward, in FP32."""
    model = library_model(config).train()
    own = {storage_of(tensor) for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if storage_of(tensor) not in own:
            kept[storage_of(tensor)] = tensor
        return tensor

    pixels = torch.zeros(images, 3, 224, 224, device="meta")
    labels = torch.zeros(images, dtype=torch.long, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outcome = model(pixel_values=pixels, labels=labels)
    assert outcome.loss is not None
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def storage_of(tensor: torch.Tensor) -> int:
    """Return what tells the storage of a tensor on the meta device from others while the tensor lives."""
    return int(tensor.untyped_storage()._cdata)
