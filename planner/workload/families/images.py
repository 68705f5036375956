"""What configs of convolutional networks have in common: their heads, and activations by what they keep."""

from collections.abc import Sequence
from typing import Final

from planner.workload.classifier import ClassifierLayer
from planner.workload.config_keys import ConfigKeys
from planner.workload.families.decoder_only import ACTIVATIONS, Chain
from planner.workload.feature_map import Activation
from planner.workload.image_pools import PoolLayer
from planner.workload.layers import Layer, runs_of
from planner.workload.streams import ImageStream

KEEPS_OUTPUT: Final = frozenset({"relu", "sigmoid", "tanh"})
"""Activations whose gradient needs their output alone; that of others needs the input."""
MANY_CLASSES: Final = 2**15
"""From about as many on as a vocabulary has, classes are split over tensor parallel as a vocabulary is."""


def read_activation(keys: ConfigKeys, default: str) -> Activation:
    """Return what a network's activation keeps for backward."""
    name = keys.choice("hidden_act", default, ACTIVATIONS)
    if name == "linear":
        return Activation.NONE
    return Activation.RELU if name in KEEPS_OUTPUT else Activation.SILU


def image_classifier(layers: Sequence[Layer], *, channels: int, classes: int, images: ImageStream) -> Chain:
    """Return layers, the mean over the last map, and a map to ``classes`` (0 for none)."""
    pool = PoolLayer(channels=channels, stream=images)
    head = ClassifierLayer(
        hidden=channels, classes=classes, bias=True, sharded=classes >= MANY_CLASSES, stream=images
    )
    return Chain(runs=runs_of((*layers, pool, *((head,) if classes else ()))), sequence_length=None)
