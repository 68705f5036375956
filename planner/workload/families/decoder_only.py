"""What config files of decoder-only language models have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from planner.workload.block import Arrangement, BlockLayer
from planner.workload.branches import Branch
from planner.workload.config_keys import ConfigKeys
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import NormLayer
from planner.workload.layers import Layer, LayerRun, runs_of
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.self_attention import SelfAttention
from planner.workload.transformer import DecoderLayer

ACTIVATIONS: Final = frozenset(
    {
        "gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "hardswish",
        "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu", "swish",
        "tanh",
    }
)  # fmt: skip
"""Element-wise functions of one argument: every one reads and writes the same bytes."""

MAX_POSITIONS: Final = 2**31
"""Positions that cost no parameter may be as many as an index can count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """The layers of a model, and the longest sequence that it was made for."""

    runs: tuple[LayerRun, ...]
    sequence_length: int | None


ReadFamily = Callable[[ConfigKeys], Chain]
"""Reads one family's config: every key that it understands, and no other."""


def language_model(
    *,
    embedding: EmbeddingLayer,
    decoders: Sequence[Layer],
    norm: Norm | None,
    head: Sequence[Layer],
) -> tuple[LayerRun, ...]:
    """Return the chain embedding, decoder layers, final norm (None for none), head."""
    final = () if norm is None else (NormLayer(hidden=embedding.hidden, norm=norm),)
    return runs_of((embedding, *decoders, *final, *head))


def decoder_layer(
    *branches: Branch,
    norm: Norm,
    arrangement: Arrangement = Arrangement.PRE,
    dropout: float = 0.0,
) -> Layer:
    """Return a block of these branches: by its sizes alone where those say it all."""
    block = BlockLayer(branches=branches, norm=norm, arrangement=arrangement, dropout=dropout)
    match branches:
        case (SelfAttention() as attention, Mlp() as mlp):
            sizes = _by_sizes(attention, mlp, block)
            return sizes if sizes.block == block else block
        case _:
            return block


def decoder_layers(
    mixers: Sequence[Branch],
    feed_forwards: Sequence[Branch],
    *,
    norm: Norm,
    arrangement: Arrangement = Arrangement.PRE,
) -> list[Layer]:
    """Return one block for every pair of branches; equal ones are one object."""
    made: dict[tuple[Branch, Branch], Layer] = {}
    for pair in zip(mixers, feed_forwards, strict=True):
        if pair not in made:
            made[pair] = decoder_layer(*pair, norm=norm, arrangement=arrangement)
    return [made[pair] for pair in zip(mixers, feed_forwards, strict=True)]


def _by_sizes(attention: SelfAttention, mlp: Mlp, block: BlockLayer) -> DecoderLayer:
    return DecoderLayer(
        hidden=attention.hidden,
        ffn=mlp.ffn,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        norm=block.norm,
        gated=mlp.gated,
        rotary=attention.rotary,
        qkv_bias=attention.qkv_bias,
        output_bias=attention.output_bias,
        mlp_bias=mlp.bias,
        attention_dropout=attention.dropout,
        hidden_dropout=block.dropout,
        arrangement=block.arrangement,
        query_key_norm=attention.query_key_norm,
        window=attention.window,
    )
