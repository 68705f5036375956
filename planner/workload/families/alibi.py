"""BLOOM, Falcon and MPT: layer norm and GELU; biases of distance in the scores instead of positions."""

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
from planner.workload.families.sizes import read_kv_heads, require_whole_heads
from planner.workload.layers import Layer
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.self_attention import SelfAttention
from planner.workload.sizes import MAX_COUNT, MAX_SIZE

BLOOM_OTHER_NAMES: Final = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embed": "hidden_size",
}
FALCON_OTHER_NAMES: Final = {"hidden_size": "n_embed"}
MPT_OTHER_NAMES: Final = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
}
WIDENING: Final = 4
"""BLOOM's and MPT's MLPs are four times as wide as the model, whatever a config says."""
BLOOM_LENGTH: Final = 2048
"""What BLOOM was trained at; its config has no key for it that its class knows."""


def read_bloom(keys: ConfigKeys) -> Chain:
    """Read a ``bloom`` config with the defaults of BloomConfig: a norm follows the embedding."""
    hidden, num_layers = (
        keys.size("n_embed", 64, largest=MAX_SIZE // WIDENING),
        keys.size("n_layer", 2, largest=MAX_COUNT),
    )
    embedding = EmbeddingLayer(vocabulary=keys.size("vocab_size", 250880), hidden=hidden, norm=Norm.LAYER)
    head = named_head(keys, "Bloom", vocabulary=embedding.vocabulary, hidden=hidden, tied_by_default=True)
    decoders = [_bloom_decoder(keys, hidden=hidden)] * num_layers
    keys.ignore("apply_residual_connection_post_layernorm", "slow_but_exact", "unk_token_id")
    keys.ignore("skip_bias_add", "skip_bias_add_qkv", "attention_softmax_in_fp32", "bias_dropout_fusion")
    keys.ignore("masked_softmax_fusion", "offset_alibi", "n_inner")
    runs = language_model(embedding=embedding, decoders=decoders, norm=Norm.LAYER, head=head)
    return Chain(runs=runs, sequence_length=keys.size("seq_length", BLOOM_LENGTH, largest=MAX_POSITIONS))


def _bloom_decoder(keys: ConfigKeys, *, hidden: int) -> Layer:
    attention = plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=8,
        hidden_key="n_embed",
        heads_key="n_head",
        qkv_bias=True,
        output_bias=True,
        dropout=keys.probability("attention_dropout", 0.0),
    )
    mlp = Mlp(hidden=hidden, ffn=WIDENING * hidden, gated=False, bias=True)
    return decoder_layer(attention, mlp, norm=Norm.LAYER, dropout=keys.probability("hidden_dropout", 0.0))


def read_falcon(keys: ConfigKeys) -> Chain:
    """Read a ``falcon`` config with the defaults of FalconConfig: attention beside the MLP, as a rule."""
    hidden = keys.size("hidden_size", 4544)
    num_layers = keys.size("num_hidden_layers", 32, largest=MAX_COUNT)
    embedding = EmbeddingLayer(vocabulary=keys.size("vocab_size", 65024), hidden=hidden)
    head = named_head(keys, "Falcon", vocabulary=embedding.vocabulary, hidden=hidden, tied_by_default=True)
    decoders = [_falcon_decoder(keys, hidden=hidden)] * num_layers
    keys.ignore("apply_residual_connection_post_layernorm")
    runs = language_model(embedding=embedding, decoders=decoders, norm=Norm.LAYER, head=head)
    longest = keys.size("max_position_embeddings", 2048, largest=MAX_POSITIONS)
    return Chain(runs=runs, sequence_length=longest)


def _falcon_decoder(keys: ConfigKeys, *, hidden: int) -> Layer:
    heads, bias = keys.size("num_attention_heads", 71), keys.flag("bias", default=False)
    require_whole_heads(keys, "hidden_size", hidden, "num_attention_heads", heads)
    keys.choice("activation", "gelu", ACTIVATIONS)
    attention = SelfAttention(
        hidden=hidden,
        heads=heads,
        kv_heads=_falcon_kv_heads(keys, heads=heads),
        head_dim=hidden // heads,
        rotary=not keys.flag("alibi", default=False),
        qkv_bias=bias,
        output_bias=bias,
        dropout=keys.probability("attention_dropout", 0.0),
    )
    ffn = keys.size("ffn_hidden_size", WIDENING * hidden, null=WIDENING * hidden)
    mlp = Mlp(hidden=hidden, ffn=ffn, gated=False, bias=bias)
    dropout = keys.probability("hidden_dropout", 0.0)
    return decoder_layer(
        attention, mlp, norm=Norm.LAYER, arrangement=_falcon_arrangement(keys), dropout=dropout
    )


def _falcon_kv_heads(keys: ConfigKeys, *, heads: int) -> int:
    """Return the key heads: one with ``multi_query``, in the new form any number, else all heads."""
    is_multi_query = keys.flag("multi_query", default=True)
    if keys.flag("new_decoder_architecture", default=False):
        return read_kv_heads(keys, None, heads=heads, key="num_kv_heads")
    keys.ignore("num_kv_heads")
    return 1 if is_multi_query else heads


def _falcon_arrangement(keys: ConfigKeys) -> Arrangement:
    """Return where the norms stand: two of them in the new form, else one for both branches."""
    is_new = keys.flag("new_decoder_architecture", default=False)
    norms = keys.size("num_ln_in_parallel_attn", 2 if is_new else 1, null=2 if is_new else 1)
    if not keys.flag("parallel_attn", default=True):
        return Arrangement.PRE
    return Arrangement.PARALLEL if norms == 2 else Arrangement.SHARED  # noqa: PLR2004 - one or two


def read_mpt(keys: ConfigKeys) -> Chain:
    """Read an ``mpt`` config with the defaults of MptConfig: no biases, not even in norms."""
    hidden, num_layers = (
        keys.size("d_model", 2048, largest=MAX_SIZE // WIDENING),
        keys.size("n_layers", 24, largest=MAX_COUNT),
    )
    embedding = EmbeddingLayer(
        vocabulary=keys.size("vocab_size", 50368),
        hidden=hidden,
        dropout=keys.probability("emb_pdrop", 0.0),
    )
    head = named_head(keys, "Mpt", vocabulary=embedding.vocabulary, hidden=hidden, tied_by_default=True)
    decoders = [_mpt_decoder(keys, hidden=hidden)] * num_layers
    keys.ignore("expansion_ratio", "learned_pos_emb", "init_device", "init_config", "logit_scale", "no_bias")
    keys.ignore("embedding_fraction", "norm_type", "verbose", "use_cache", "tokenizer_name")
    norm = Norm.SCALED_LAYER
    runs = language_model(embedding=embedding, decoders=decoders, norm=norm, head=head)
    return Chain(runs=runs, sequence_length=keys.size("max_seq_len", 2048, largest=MAX_POSITIONS))


def _mpt_decoder(keys: ConfigKeys, *, hidden: int) -> Layer:
    of_attention = keys.section("attn_config")
    of_attention.ignore("attn_type", "attn_impl", "clip_qkv", "softmax_scale", "prefix_lm", "qk_ln")
    of_attention.ignore("attn_uses_sequence_id", "alibi", "alibi_bias_max")
    attention = plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=16,
        hidden_key="d_model",
        heads_key="n_heads",
        dropout=of_attention.probability("attn_pdrop", 0.0),
    )
    mlp = Mlp(hidden=hidden, ffn=WIDENING * hidden, gated=False)
    return decoder_layer(attention, mlp, norm=Norm.SCALED_LAYER, dropout=keys.probability("resid_pdrop", 0.0))
