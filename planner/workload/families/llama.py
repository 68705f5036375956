"""The llama shape (llama, mistral, qwen2): RMS norm, rotary positions, gated MLP, grouped key heads."""

from dataclasses import dataclass
from typing import Final

from planner.workload.config_keys import ConfigKeys
from planner.workload.ends import EmbeddingLayer
from planner.workload.families.decoder_only import ACTIVATIONS, Chain, language_model
from planner.workload.passes import Norm
from planner.workload.sizes import MAX_COUNT
from planner.workload.transformer import DecoderLayer

MAX_POSITIONS: Final = 2**31
"""Positions that cost no parameter may be as many as an index can count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Defaults:
    """What a missing key means to a family's config class; the rest is common to all three.

    ``num_key_value_heads`` None means as many as heads.
    """

    vocab_size: int
    intermediate_size: int
    num_key_value_heads: int | None
    max_position_embeddings: int


LLAMA: Final = Defaults(
    vocab_size=32000, intermediate_size=11008, num_key_value_heads=None, max_position_embeddings=2048
)
MISTRAL: Final = Defaults(
    vocab_size=32000, intermediate_size=14336, num_key_value_heads=8, max_position_embeddings=4096 * 32
)
QWEN2: Final = Defaults(
    vocab_size=151936, intermediate_size=22016, num_key_value_heads=32, max_position_embeddings=32768
)


def read_llama(keys: ConfigKeys) -> Chain:
    """Read a ``llama`` config with the defaults of LlamaConfig; biases are switches."""
    attention_bias = keys.flag("attention_bias", default=False)
    keys.expect("architectures", [], ["LlamaForCausalLM"])
    return _chain(
        keys,
        LLAMA,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=keys.flag("mlp_bias", default=False),
    )


def read_mistral(keys: ConfigKeys) -> Chain:
    """Read a ``mistral`` config with the defaults of MistralConfig; a window is priced as full attention."""
    keys.expect("architectures", [], ["MistralForCausalLM"])
    keys.expect("sliding_window", default=4096)
    return _chain(keys, MISTRAL)


def read_qwen2(keys: ConfigKeys) -> Chain:
    """Read a ``qwen2`` config with the defaults of Qwen2Config; Q, K and V always have biases."""
    keys.expect("architectures", [], ["Qwen2ForCausalLM"])
    if not keys.flag("use_sliding_window", default=False):
        keys.ignore("sliding_window", "max_window_layers")
    num_layers = keys.size("num_hidden_layers", 32, largest=MAX_COUNT)
    keys.expect("layer_types", ["full_attention"] * num_layers)
    return _chain(keys, QWEN2, qkv_bias=True)


def _chain(
    keys: ConfigKeys,
    defaults: Defaults,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
) -> Chain:
    hidden, heads = keys.size("hidden_size", 4096), keys.size("num_attention_heads", 32)
    keys.choice("hidden_act", "silu", ACTIVATIONS)
    decoder = DecoderLayer(
        hidden=hidden,
        ffn=keys.size("intermediate_size", defaults.intermediate_size),
        heads=heads,
        kv_heads=_kv_heads(keys, defaults, heads=heads),
        head_dim=_head_dim(keys, hidden=hidden, heads=heads),
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        attention_dropout=keys.probability("attention_dropout", 0.0),
    )
    runs = language_model(
        embedding=EmbeddingLayer(vocabulary=keys.size("vocab_size", defaults.vocab_size), hidden=hidden),
        decoder=decoder,
        num_layers=keys.size("num_hidden_layers", 32, largest=MAX_COUNT),
        norm=Norm.RMS,
        is_tied=keys.flag("tie_word_embeddings", default=False),
    )
    longest = keys.size("max_position_embeddings", defaults.max_position_embeddings, largest=MAX_POSITIONS)
    keys.expect("is_encoder_decoder", False)  # noqa: FBT003 - the value that changes nothing
    return Chain(runs=runs, sequence_length=longest)


def _kv_heads(keys: ConfigKeys, defaults: Defaults, *, heads: int) -> int:
    kv_heads = keys.size("num_key_value_heads", defaults.num_key_value_heads or heads, null=heads)
    if heads % kv_heads:
        keys.refuse(
            "num_key_value_heads",
            f"num_attention_heads ({heads}) must be a multiple of num_key_value_heads ({kv_heads})",
            nearest_legal=[number for number in range(min(kv_heads, heads), 0, -1) if heads % number == 0][
                :1
            ],
        )
    return kv_heads


def _head_dim(keys: ConfigKeys, *, hidden: int, heads: int) -> int:
    head_dim = keys.size("head_dim", hidden // heads or 1, null=hidden // heads or 1)
    if not keys.has("head_dim") and hidden % heads:
        keys.refuse(
            "hidden_size", f"hidden_size ({hidden}) must be a multiple of num_attention_heads ({heads})"
        )
    return head_dim
