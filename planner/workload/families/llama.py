"""The llama shape: RMS norm, rotary positions, gated MLP, grouped key heads.

Llama itself, Mistral, Qwen 2 and 3, Phi-3; Starcoder 2 and Nemotron, whose MLPs are not gated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.workload.block import Arrangement
from planner.workload.config_keys import ConfigKeys
from planner.workload.embedding import EmbeddingLayer
from planner.workload.families.decoder_only import Chain, decoder_layer, language_model
from planner.workload.families.heads import head_layers, read_head
from planner.workload.families.layer_types import read_switched_windows
from planner.workload.families.sizes import Defaults, Sizes, read_sizes
from planner.workload.layers import Layer
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.self_attention import SelfAttention

LLAMA: Final = Defaults(vocab_size=32000, intermediate_size=11008, max_position_embeddings=2048)
MISTRAL: Final = Defaults(
    vocab_size=32000, intermediate_size=14336, num_key_value_heads=8, max_position_embeddings=4096 * 32
)
QWEN2: Final = Defaults(
    vocab_size=151936, intermediate_size=22016, num_key_value_heads=32, max_position_embeddings=32768
)
QWEN3: Final = Defaults(
    vocab_size=151936,
    intermediate_size=22016,
    num_key_value_heads=32,
    head_dim=128,
    max_position_embeddings=32768,
)
PHI3: Final = Defaults(
    vocab_size=32064, hidden_size=3072, intermediate_size=8192, max_position_embeddings=4096
)
STARCODER2: Final = Defaults(
    vocab_size=49152,
    hidden_size=3072,
    intermediate_size=12288,
    num_hidden_layers=30,
    num_attention_heads=24,
    num_key_value_heads=2,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
)
NEMOTRON: Final = Defaults(
    vocab_size=256000,
    hidden_size=6144,
    intermediate_size=24576,
    num_attention_heads=48,
    max_position_embeddings=4096,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """What distinguishes the blocks of one family: norms, biases, gate, dropout."""

    norm: Norm = Norm.RMS
    arrangement: Arrangement = Arrangement.PRE
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    gated: bool = True
    query_key_norm: bool = False
    dropout: float = 0.0


def read_llama(keys: ConfigKeys) -> Chain:
    """Read a ``llama`` config with the defaults of LlamaConfig; biases are switches."""
    attention_bias = keys.flag("attention_bias", default=False)
    style = Style(
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=keys.flag("mlp_bias", default=False),
    )
    return dense_chain(keys, read_sizes(keys, LLAMA), style, prefixes=["Llama"])


def read_mistral(keys: ConfigKeys) -> Chain:
    """Read a ``mistral`` config with the defaults of MistralConfig: one window for all layers."""
    sizes, window = read_sizes(keys, MISTRAL), keys.size_or_none("sliding_window", 4096)
    return dense_chain(keys, sizes, Style(), prefixes=["Mistral"], windows=[window] * sizes.num_layers)


def read_qwen2(keys: ConfigKeys) -> Chain:
    """Read a ``qwen2`` config with the defaults of Qwen2Config; Q, K and V always have biases."""
    sizes = read_sizes(keys, QWEN2)
    windows = read_switched_windows(keys, sizes.num_layers, default=4096)
    return dense_chain(keys, sizes, Style(qkv_bias=True), prefixes=["Qwen2"], windows=windows)


def read_qwen3(keys: ConfigKeys) -> Chain:
    """Read a ``qwen3`` config with the defaults of Qwen3Config: heads of Q and K are normalised."""
    sizes, bias = read_sizes(keys, QWEN3), keys.flag("attention_bias", default=False)
    windows = read_switched_windows(keys, sizes.num_layers, default=4096)
    style = Style(qkv_bias=bias, output_bias=bias, query_key_norm=True)
    return dense_chain(keys, sizes, style, prefixes=["Qwen3"], windows=windows)


def read_phi3(keys: ConfigKeys) -> Chain:
    """Read a ``phi3`` config with the defaults of Phi3Config; fused products have the same weights."""
    sizes, window = read_sizes(keys, PHI3), keys.size_or_none("sliding_window", None)
    style = Style(dropout=keys.probability("resid_pdrop", 0.0))
    embedding_dropout = keys.probability("embd_pdrop", 0.0)
    return dense_chain(
        keys,
        sizes,
        style,
        prefixes=["Phi3"],
        windows=[window] * sizes.num_layers,
        embedding_dropout=embedding_dropout,
    )


def read_starcoder2(keys: ConfigKeys) -> Chain:
    """Read a ``starcoder2`` config with the defaults of Starcoder2Config: layer norm, plain MLP."""
    sizes, window = read_sizes(keys, STARCODER2), keys.size_or_none("sliding_window", None)
    bias = keys.flag("use_bias", default=True)
    style = Style(
        norm=Norm.LAYER,
        gated=False,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        dropout=keys.probability("residual_dropout", 0.0),
    )
    embedding_dropout = keys.probability("embedding_dropout", 0.0)
    return dense_chain(
        keys,
        sizes,
        style,
        prefixes=["Starcoder2"],
        windows=[window] * sizes.num_layers,
        embedding_dropout=embedding_dropout,
    )


def read_nemotron(keys: ConfigKeys) -> Chain:
    """Read a ``nemotron`` config with the defaults of NemotronConfig: layer norm, plain MLP."""
    attention_bias = keys.flag("attention_bias", default=False)
    style = Style(
        norm=Norm.LAYER,
        gated=False,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=keys.flag("mlp_bias", default=False),
    )
    return dense_chain(keys, read_sizes(keys, NEMOTRON), style, prefixes=["Nemotron"])


def dense_chain(
    keys: ConfigKeys,
    sizes: Sizes,
    style: Style,
    *,
    prefixes: Sequence[str],
    windows: Sequence[int | None] | None = None,
    embedding_dropout: float = 0.0,
) -> Chain:
    """Return the chain of a dense model; ``windows`` are those of its layers, by default none."""
    dropout = keys.probability("attention_dropout", 0.0)
    own_windows = windows or [None] * sizes.num_layers
    by_window = {
        window: _decoder(sizes, style, window=window, dropout=dropout)
        for window in dict.fromkeys(own_windows)
    }
    return whole_chain(
        keys,
        sizes,
        [by_window[window] for window in own_windows],
        norm=style.norm,
        prefixes=prefixes,
        embedding_dropout=embedding_dropout,
    )


def whole_chain(
    keys: ConfigKeys,
    sizes: Sizes,
    decoders: Sequence[Layer],
    *,
    norm: Norm,
    prefixes: Sequence[str],
    embedding_dropout: float = 0.0,
    predictions: Sequence[Layer] = (),
) -> Chain:
    """Return decoder layers with the ends that ``architectures`` names; ``predictions`` are extra layers."""
    runs = language_model(
        embedding=EmbeddingLayer(vocabulary=sizes.vocabulary, hidden=sizes.hidden, dropout=embedding_dropout),
        decoders=(*decoders, *predictions),
        norm=norm,
        head=head_layers(
            keys,
            read_head(keys, *prefixes),
            vocabulary=sizes.vocabulary,
            hidden=sizes.hidden,
            is_tied=sizes.is_tied,
        ),
    )
    return Chain(runs=runs, sequence_length=sizes.positions)


def _decoder(sizes: Sizes, style: Style, *, window: int | None, dropout: float) -> Layer:
    attention = SelfAttention(
        hidden=sizes.hidden,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        qkv_bias=style.qkv_bias,
        output_bias=style.output_bias,
        query_key_norm=style.query_key_norm,
        window=window,
        dropout=dropout,
    )
    mlp = Mlp(hidden=sizes.hidden, ffn=sizes.ffn, gated=style.gated, bias=style.mlp_bias)
    return decoder_layer(
        attention, mlp, norm=style.norm, arrangement=style.arrangement, dropout=style.dropout
    )
