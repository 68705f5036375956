"""GPT-2: layer norm, GELU, biases everywhere, learned positions, a head tied to the embedding."""

from typing import Final

from planner.workload.config_keys import ConfigKeys
from planner.workload.embedding import EmbeddingLayer
from planner.workload.families.decoder_only import ACTIVATIONS, Chain, decoder_layer, language_model
from planner.workload.families.heads import named_head
from planner.workload.families.plain_attention import plain_attention
from planner.workload.layers import Layer
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.sizes import MAX_COUNT

GPT2_OTHER_NAMES: Final = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
}
"""The class takes these spellings too."""


def read_gpt2(keys: ConfigKeys) -> Chain:
    """Read a ``gpt2`` config with the defaults of GPT2Config."""
    embedding = EmbeddingLayer(
        vocabulary=keys.size("vocab_size", 50257),
        hidden=keys.size("n_embd", 768),
        positions=keys.size("n_positions", 1024),
        dropout=keys.probability("embd_pdrop", 0.1),
    )
    num_layers = keys.size("n_layer", 12, largest=MAX_COUNT)
    runs = language_model(
        embedding=embedding,
        decoders=[_decoder(keys, hidden=embedding.hidden)] * num_layers,
        norm=Norm.LAYER,
        head=named_head(
            keys, "GPT2", vocabulary=embedding.vocabulary, hidden=embedding.hidden, tied_by_default=True
        ),
    )
    _settle(keys)
    return Chain(runs=runs, sequence_length=embedding.positions)


def _decoder(keys: ConfigKeys, *, hidden: int) -> Layer:
    keys.choice("activation_function", "gelu_new", ACTIVATIONS)
    attention = plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=12,
        hidden_key="n_embd",
        heads_key="n_head",
        qkv_bias=True,
        output_bias=True,
        dropout=keys.probability("attn_pdrop", 0.1),
    )
    ffn = keys.size("n_inner", 4 * hidden, null=4 * hidden)
    mlp = Mlp(hidden=hidden, ffn=ffn, gated=False, bias=True)
    return decoder_layer(attention, mlp, norm=Norm.LAYER, dropout=keys.probability("resid_pdrop", 0.1))


def _settle(keys: ConfigKeys) -> None:
    """Pass over what is without cost, and over what would have one where it is switched off."""
    if keys.flag("add_cross_attention", default=False):
        keys.refuse("add_cross_attention", "a decoder-only model has no cross-attention to add")
    keys.expect("is_encoder_decoder", False)  # noqa: FBT003 - the value that changes nothing
    keys.expect("scale_attn_by_inverse_layer_idx", False)  # noqa: FBT003
    keys.expect("reorder_and_upcast_attn", False)  # noqa: FBT003
    keys.ignore("n_ctx", "scale_attn_weights", "summary_type", "summary_use_proj", "summary_activation")
    keys.ignore("summary_proj_to_labels", "summary_first_dropout")
