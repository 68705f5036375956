"""ResNet (He et al., "Deep Residual Learning for Image Recognition", 2016), as transformers builds it."""

from dataclasses import dataclass
from typing import Final

from planner.workload.config_keys import ConfigKeys
from planner.workload.convolution import Convolution
from planner.workload.convolutional import ConvolutionalLayer
from planner.workload.families.decoder_only import Chain
from planner.workload.families.images import image_classifier, read_activation
from planner.workload.feature_map import Activation
from planner.workload.image_pools import WindowPool
from planner.workload.layers import EMBEDDING, Layer
from planner.workload.sizes import MAX_COUNT
from planner.workload.streams import ImageStream

HEADS: Final = ("ResNetForImageClassification", "ResNetModel")
IMAGE_SIZE: Final = 224
"""A config says no size of images; this is the one that the paper trains on."""
REDUCTION: Final = 4
"""Channels of a bottleneck's output to one inside."""
RELU: Final = Activation.RELU


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """What all blocks of a network share: their form, and where a bottleneck has its stride.

    ``activation`` follows the sum: the library has a ReLU within the blocks whatever the config says.
    """

    is_bottleneck: bool
    strides_first: bool
    activation: Activation

    def block(self, inputs: int, outputs: int, stride: int, stream: ImageStream) -> Layer:
        """Return one residual block; a shortcut brings the input to another shape."""
        parts = (self._bottleneck if self.is_bottleneck else self._basic)(inputs, outputs, stride)
        changes = inputs != outputs or stride != 1
        shortcut = Convolution(inputs=inputs, outputs=outputs, stride=stride) if changes else None
        return ConvolutionalLayer(
            parts=parts, stream=stream, residual=True, shortcut=shortcut, activation=self.activation
        )

    def _basic(self, inputs: int, outputs: int, stride: int) -> tuple[Convolution, ...]:
        return (
            Convolution(inputs=inputs, outputs=outputs, kernel=3, stride=stride, activation=self.activation),
            Convolution(inputs=outputs, outputs=outputs, kernel=3),
        )

    def _bottleneck(self, inputs: int, outputs: int, stride: int) -> tuple[Convolution, ...]:
        inner = outputs // REDUCTION
        first, second = (stride, 1) if self.strides_first else (1, stride)
        return (
            Convolution(inputs=inputs, outputs=inner, stride=first, activation=RELU),
            Convolution(inputs=inner, outputs=inner, kernel=3, stride=second, activation=RELU),
            Convolution(inputs=inner, outputs=outputs),
        )


def read_resnet(keys: ConfigKeys) -> Chain:
    """Read a ``resnet`` config with the defaults of ResNetConfig: a classifier of images, or its body."""
    blocks = Blocks(
        is_bottleneck=keys.choice("layer_type", "bottleneck", ("basic", "bottleneck")) == "bottleneck",
        strides_first=keys.flag("downsample_in_bottleneck", default=False),
        activation=read_activation(keys, "relu"),
    )
    widths = keys.sizes("hidden_sizes", (256, 512, 1024, 2048))
    if blocks.is_bottleneck and min(widths) < REDUCTION:
        keys.refuse("hidden_sizes", f"hidden_sizes ({min(widths)}) of a bottleneck must be at least 4")
    depths = keys.sizes("depths", (3, 4, 6, 3), largest=MAX_COUNT)
    if len(depths) != len(widths):
        keys.refuse("depths", f"depths must hold {len(widths)} numbers as hidden_sizes, not {len(depths)}")
    named = keys.architecture(HEADS) or HEADS[0]
    keys.ignore("out_features", "out_indices", "stage_names")
    layers: list[Layer] = [_stem(keys, blocks.activation)]
    inputs, pixels = keys.size("embedding_size", 64), 4
    strides = [2 if keys.flag("downsample_in_first_stage", default=False) else 1, *[2] * (len(widths) - 1)]
    for outputs, depth, stride in zip(widths, depths, strides, strict=True):
        layers.append(blocks.block(inputs, outputs, stride, _map(pixels)))
        inputs, pixels = outputs, pixels * stride
        layers += [blocks.block(inputs, outputs, 1, _map(pixels))] * (depth - 1)
    classes = keys.classes() if named == HEADS[0] else 0
    return image_classifier(layers, channels=inputs, classes=classes, images=_map(pixels))


def _stem(keys: ConfigKeys, activation: Activation) -> Layer:
    """Return a wide convolution and a pool, each with a stride of two."""
    width = keys.size("embedding_size", 64)
    convolution = Convolution(
        inputs=keys.size("num_channels", 3), outputs=width, kernel=7, stride=2, activation=activation
    )
    pool = WindowPool(channels=width, kernel=3, stride=2)
    return ConvolutionalLayer(parts=(convolution, pool), stream=_map(1), role=EMBEDDING)


def _map(pixels: int) -> ImageStream:
    """Return images whose map has one position for so many pixels, along a side."""
    return ImageStream(image_size=IMAGE_SIZE, patch_size=pixels)
