"""What config files of decoder-only language models have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from planner.workload.config_keys import ConfigKeys
from planner.workload.ends import EmbeddingLayer, HeadLayer, NormLayer
from planner.workload.layers import LayerRun
from planner.workload.passes import Norm
from planner.workload.transformer import DecoderLayer

ACTIVATIONS: Final = frozenset(
    {
        "gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "hardswish",
        "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu", "swish",
        "tanh",
    }
)  # fmt: skip
"""Element-wise functions of one argument: every one reads and writes the same bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """The layers of a model, and the longest sequence that it was made for."""

    runs: tuple[LayerRun, ...]
    sequence_length: int


ReadFamily = Callable[[ConfigKeys], Chain]
"""Reads one family's config: every key that it understands, and no other."""


def language_model(
    *, embedding: EmbeddingLayer, decoder: DecoderLayer, num_layers: int, norm: Norm, is_tied: bool
) -> tuple[LayerRun, ...]:
    """Return the chain embedding, decoder layers, final norm, head (without bias)."""
    head = HeadLayer(vocabulary=embedding.vocabulary, hidden=embedding.hidden, tied=is_tied)
    return (
        LayerRun(layer=embedding, count=1),
        LayerRun(layer=decoder, count=num_layers),
        LayerRun(layer=NormLayer(hidden=embedding.hidden, norm=norm), count=1),
        LayerRun(layer=head, count=1),
    )
