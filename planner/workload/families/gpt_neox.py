"""GPT-NeoX and GPT-J: rotary positions, and attention beside the MLP instead of before it."""

from typing import Final

from planner.workload.block import Arrangement
from planner.workload.config_keys import ConfigKeys
from planner.workload.embedding import EmbeddingLayer
from planner.workload.families.decoder_only import (
    ACTIVATIONS,
    MAX_POSITIONS,
    Chain,
    decoder_layer,
    language_model,
)
from planner.workload.families.heads import named_head
from planner.workload.families.plain_attention import plain_attention
from planner.workload.layers import Layer
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.sizes import MAX_COUNT

GPTJ_OTHER_NAMES: Final = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
}


def read_gpt_neox(keys: ConfigKeys) -> Chain:
    """Read a ``gpt_neox`` config with the defaults of GPTNeoXConfig."""
    hidden, num_layers = keys.size("hidden_size", 6144), keys.size("num_hidden_layers", 44, largest=MAX_COUNT)
    keys.expect("is_decoder", False, True)  # noqa: FBT003 - both are the same model
    keys.ignore("classifier_dropout")
    embedding = EmbeddingLayer(
        vocabulary=keys.size("vocab_size", 50432),
        hidden=hidden,
        dropout=keys.probability("hidden_dropout", 0.0),
    )
    head = named_head(keys, "GPTNeoX", vocabulary=embedding.vocabulary, hidden=hidden)
    decoders = [_neox_decoder(keys, hidden=hidden)] * num_layers
    runs = language_model(embedding=embedding, decoders=decoders, norm=Norm.LAYER, head=head)
    longest = keys.size("max_position_embeddings", 2048, largest=MAX_POSITIONS)
    return Chain(runs=runs, sequence_length=longest)


def _neox_decoder(keys: ConfigKeys, *, hidden: int) -> Layer:
    bias = keys.flag("attention_bias", default=True)
    keys.choice("hidden_act", "gelu", ACTIVATIONS)
    is_parallel = keys.flag("use_parallel_residual", default=True)
    attention = plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=64,
        qkv_bias=bias,
        output_bias=bias,
        dropout=keys.probability("attention_dropout", 0.0),
        rotary=True,
    )
    mlp = Mlp(hidden=hidden, ffn=keys.size("intermediate_size", 24576), gated=False, bias=True)
    return decoder_layer(
        attention,
        mlp,
        norm=Norm.LAYER,
        arrangement=Arrangement.PARALLEL if is_parallel else Arrangement.PRE,
        dropout=keys.probability("hidden_dropout", 0.0),
    )


def read_gptj(keys: ConfigKeys) -> Chain:
    """Read a ``gptj`` config with the defaults of GPTJConfig: one norm for both branches."""
    hidden, num_layers = keys.size("n_embd", 4096), keys.size("n_layer", 28, largest=MAX_COUNT)
    embedding = EmbeddingLayer(
        vocabulary=keys.size("vocab_size", 50400),
        hidden=hidden,
        dropout=keys.probability("embd_pdrop", 0.0),
    )
    head = named_head(keys, "GPTJ", vocabulary=embedding.vocabulary, hidden=hidden, bias=True)
    decoders = [_gptj_decoder(keys, hidden=hidden)] * num_layers
    runs = language_model(embedding=embedding, decoders=decoders, norm=Norm.LAYER, head=head)
    keys.ignore("n_ctx", "scale_attn_weights", "summary_type", "summary_use_proj", "summary_activation")
    keys.ignore("summary_proj_to_labels", "summary_first_dropout", "rotary")
    return Chain(runs=runs, sequence_length=keys.size("n_positions", 2048, largest=MAX_POSITIONS))


def _gptj_decoder(keys: ConfigKeys, *, hidden: int) -> Layer:
    dropout = keys.probability("resid_pdrop", 0.0)
    keys.choice("activation_function", "gelu_new", ACTIVATIONS)
    attention = plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=16,
        hidden_key="n_embd",
        heads_key="n_head",
        dropout=keys.probability("attn_pdrop", 0.0),
        rotary=True,
    )
    ffn = keys.size("n_inner", 4 * hidden, null=4 * hidden)
    mlp = Mlp(hidden=hidden, ffn=ffn, gated=False, bias=True)
    return decoder_layer(attention, mlp, norm=Norm.LAYER, arrangement=Arrangement.SHARED, dropout=dropout)
