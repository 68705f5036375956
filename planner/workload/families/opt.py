"""OPT: layer norm, ReLU, learned positions; the small 350M with norms after sums and a narrow embedding."""

from typing import Final

from planner.workload.block import Arrangement
from planner.workload.config_keys import ConfigKeys
from planner.workload.embedding import EmbeddingLayer
from planner.workload.families.decoder_only import ACTIVATIONS, Chain, decoder_layer, language_model
from planner.workload.families.heads import named_head
from planner.workload.families.plain_attention import plain_attention
from planner.workload.layers import Layer
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.projector import ProjectorLayer
from planner.workload.sizes import MAX_COUNT, MAX_SIZE

POSITION_OFFSET: Final = 2
"""The table of positions begins two rows late."""


def read_opt(keys: ConfigKeys) -> Chain:
    """Read an ``opt`` config with the defaults of OPTConfig."""
    hidden, num_layers = keys.size("hidden_size", 768), keys.size("num_hidden_layers", 12, largest=MAX_COUNT)
    positions = keys.size("max_position_embeddings", 2048, largest=MAX_SIZE - POSITION_OFFSET)
    table = keys.size("word_embed_proj_dim", hidden, null=hidden)
    norm = Norm.LAYER if keys.flag("layer_norm_elementwise_affine", default=True) else Norm.PLAIN_LAYER
    is_pre = keys.flag("do_layer_norm_before", default=True)
    ends_with_norm = is_pre and not keys.flag("_remove_final_layer_norm", default=False)
    embedding = EmbeddingLayer(
        vocabulary=keys.size("vocab_size", 50272),
        hidden=hidden,
        positions=positions + POSITION_OFFSET,
        width=None if table == hidden else table,
    )
    head = named_head(keys, "OPT", vocabulary=embedding.vocabulary, hidden=table, tied_by_default=True)
    narrowing = () if table == hidden else (ProjectorLayer(widths=(hidden, table)),)
    arrangement = Arrangement.PRE if is_pre else Arrangement.POST
    runs = language_model(
        embedding=embedding,
        decoders=[_decoder(keys, hidden=hidden, norm=norm, arrangement=arrangement)] * num_layers,
        norm=norm if ends_with_norm else None,
        head=(*narrowing, *head),
    )
    keys.ignore("layerdrop", "prefix", "activation_dropout")
    return Chain(runs=runs, sequence_length=positions)


def _decoder(keys: ConfigKeys, *, hidden: int, norm: Norm, arrangement: Arrangement) -> Layer:
    bias = keys.flag("enable_bias", default=True)
    keys.choice("activation_function", "relu", ACTIVATIONS)
    attention = plain_attention(
        keys,
        hidden=hidden,
        heads_by_default=12,
        qkv_bias=bias,
        output_bias=bias,
        dropout=keys.probability("attention_dropout", 0.0),
    )
    mlp = Mlp(hidden=hidden, ffn=keys.size("ffn_dim", 3072), gated=False, bias=bias)
    return decoder_layer(
        attention, mlp, norm=norm, arrangement=arrangement, dropout=keys.probability("dropout", 0.1)
    )
