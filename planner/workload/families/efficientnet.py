"""EfficientNet (Tan and Le, 2019), as transformers builds it: inverted bottlenecks, scaled as a whole."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from planner.workload.config_keys import ConfigKeys
from planner.workload.convolution import MAX_KERNEL, Convolution
from planner.workload.convolutional import ConvolutionalLayer
from planner.workload.families.decoder_only import Chain
from planner.workload.families.images import image_classifier, read_activation
from planner.workload.feature_map import Activation
from planner.workload.layers import EMBEDDING, ENCODER, Layer
from planner.workload.sizes import MAX_COUNT, MAX_SIZE
from planner.workload.squeeze_excite import SqueezeExcite
from planner.workload.streams import MAX_PIXELS, ImageStream

HEADS: Final = ("EfficientNetForImageClassification", "EfficientNetModel")
STEM_CHANNELS: Final = 32
TOP_CHANNELS: Final = 1280
"""Channels of the first and the last convolution, before the width is scaled."""
LARGEST_SCALE: Final = 100
SMALLEST_SHARE: Final = 0.9
"""Rounding takes away a tenth of the channels at most."""
STAGES: Final = {
    "kernel_sizes": (3, 3, 5, 3, 5, 5, 3),
    "in_channels": (32, 16, 24, 40, 80, 112, 192),
    "out_channels": (16, 24, 40, 80, 112, 192, 320),
    "strides": (1, 2, 2, 2, 1, 2, 1),
    "num_block_repeats": (1, 2, 2, 3, 3, 4, 1),
    "expand_ratios": (1, 6, 6, 6, 6, 6, 6),
}
"""One number for each stage, with what its absence means to EfficientNetConfig."""
LARGEST: Final = {
    "kernel_sizes": MAX_KERNEL,
    "strides": MAX_KERNEL,
    "num_block_repeats": MAX_COUNT,
    "expand_ratios": MAX_KERNEL,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How wide and deep a network is; channels are multiples of ``divisor``."""

    width: float
    depth: float
    divisor: int

    def channels(self, base: int) -> int:
        """Return a scaled number of channels, rounded to a multiple that is not much less."""
        exact = base * self.width
        rounded = max(self.divisor, int(exact + self.divisor / 2) // self.divisor * self.divisor)
        return rounded + self.divisor if rounded < SMALLEST_SHARE * exact else rounded

    def repeats(self, base: int) -> int:
        """Return a scaled number of blocks."""
        return ceil(self.depth * base)


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """What all blocks of a network share; ``squeeze`` is the width of squeezed channels over the input's."""

    squeeze: float
    activation: Activation
    dropout: float
    image_size: int

    def block(
        self, inputs: int, outputs: int, *, kernel: int, stride: int, expand: int, pixels: int, adds: bool
    ) -> Layer:
        """Return expansion, depth-wise convolution, squeeze and excite, projection, perhaps a sum."""
        inner = inputs * expand
        expansion = Convolution(inputs=inputs, outputs=inner, activation=self.activation)
        depthwise = Convolution(
            inputs=inner,
            outputs=inner,
            kernel=kernel,
            stride=stride,
            groups=inner,
            activation=self.activation,
        )
        squeeze = SqueezeExcite(channels=inner, width=max(1, int(inputs * self.squeeze)))
        projection = Convolution(inputs=inner, outputs=outputs)
        return ConvolutionalLayer(
            parts=(*((expansion,) if expand > 1 else ()), depthwise, squeeze, projection),
            stream=self.map(pixels),
            residual=adds,
            dropout=self.dropout if adds else 0.0,
        )

    def map(self, pixels: int) -> ImageStream:
        """Return images whose map has one position for so many pixels, along a side.

        Sides round up, as the padding of the published models makes them.
        """
        return ImageStream(image_size=self.image_size, patch_size=pixels)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """Blocks of one width; the first one reads ``inputs`` channels and has the ``stride``."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    expand: int
    repeats: int

    def layers(self, blocks: Blocks, *, pixels: int) -> list[Layer]:
        """Return the blocks; all but the first add what they read."""
        first = blocks.block(
            self.inputs,
            self.outputs,
            kernel=self.kernel,
            stride=self.stride,
            expand=self.expand,
            pixels=pixels,
            adds=False,
        )
        other = blocks.block(
            self.outputs,
            self.outputs,
            kernel=self.kernel,
            stride=1,
            expand=self.expand,
            pixels=pixels * self.stride,
            adds=True,
        )
        return [first, *[other] * (self.repeats - 1)]


def read_efficientnet(keys: ConfigKeys) -> Chain:
    """Read an ``efficientnet`` config with the defaults of EfficientNetConfig (B7)."""
    scale, blocks = _scale(keys), _blocks(keys)
    named = keys.architecture(HEADS) or HEADS[0]
    keys.choice("pooling_type", "mean", ("max", "mean"))
    keys.ignore("depthwise_padding", "batch_norm_eps", "batch_norm_momentum", "dropout_rate")
    keys.ignore("num_hidden_layers")
    stages = _stages(keys, scale)
    channels, pixels = stages[0].inputs, 2
    stem = Convolution(
        inputs=keys.size("num_channels", 3),
        outputs=channels,
        kernel=3,
        stride=2,
        activation=blocks.activation,
    )
    layers: list[Layer] = [ConvolutionalLayer(parts=(stem,), stream=blocks.map(1), role=EMBEDDING)]
    for stage in stages:
        layers += stage.layers(blocks, pixels=pixels)
        channels, pixels = stage.outputs, pixels * stage.stride
    top = Convolution(inputs=channels, outputs=_top_channels(keys, scale), activation=blocks.activation)
    layers.append(ConvolutionalLayer(parts=(top,), stream=blocks.map(pixels), role=ENCODER))
    classes = keys.classes() if named == HEADS[0] else 0
    return image_classifier(layers, channels=top.outputs, classes=classes, images=blocks.map(pixels))


def _scale(keys: ConfigKeys) -> Scale:
    return Scale(
        width=keys.multiple("width_coefficient", 2.0, largest=LARGEST_SCALE),
        depth=keys.multiple("depth_coefficient", 3.1, largest=LARGEST_SCALE),
        divisor=keys.size("depth_divisor", 8),
    )


def _blocks(keys: ConfigKeys) -> Blocks:
    return Blocks(
        squeeze=keys.fraction("squeeze_expansion_ratio", 0.25),
        activation=read_activation(keys, "swish"),
        dropout=keys.probability("drop_connect_rate", 0.2),
        image_size=keys.side("image_size", 600, largest=MAX_PIXELS),
    )


def _stages(keys: ConfigKeys, scale: Scale) -> list[Stage]:
    """Return the stages, each of which reads what the one before it writes."""
    found = {
        key: keys.sizes(key, default, largest=LARGEST.get(key, MAX_SIZE)) for key, default in STAGES.items()
    }
    for key, values in found.items():
        if len(values) != len(found["in_channels"]):
            message = f"{key} must hold {len(found['in_channels'])} numbers as in_channels, not {len(values)}"
            keys.refuse(key, message)
    written = (STEM_CHANNELS, *found["out_channels"])
    for place, (given, before) in enumerate(zip(found["in_channels"], written, strict=False)):
        if scale.channels(given) != scale.channels(before):
            message = f"in_channels must be {before} at {place}, as the layer before writes them, not {given}"
            keys.refuse("in_channels", message)
    return [
        Stage(
            inputs=scale.channels(inputs),
            outputs=scale.channels(outputs),
            kernel=kernel,
            stride=stride,
            expand=expand,
            repeats=_repeats(keys, scale, repeats),
        )
        for kernel, inputs, outputs, stride, repeats, expand in zip(*found.values(), strict=True)
    ]


def _repeats(keys: ConfigKeys, scale: Scale, base: int) -> int:
    repeats = scale.repeats(base)
    if repeats > MAX_COUNT:
        message = (
            f"num_block_repeats ({base}) times depth_coefficient ({scale.depth:g}) is beyond {MAX_COUNT}"
        )
        keys.refuse("num_block_repeats", message)
    return repeats


def _top_channels(keys: ConfigKeys, scale: Scale) -> int:
    """Return the channels of the last convolution, which ``hidden_dim`` says a second time."""
    channels = scale.channels(TOP_CHANNELS)
    hidden = keys.size("hidden_dim", 2560)
    if hidden != channels:
        message = f"hidden_dim ({hidden}) must be {channels}: {TOP_CHANNELS} by the width_coefficient"
        keys.refuse("hidden_dim", message, nearest_legal=(channels,))
    return channels
