"""Mamba and Mamba-2: state-space blocks alone."""

from typing import Final

from planner.workload.config_keys import ConfigKeys
from planner.workload.embedding import EmbeddingLayer
from planner.workload.families.decoder_only import ACTIVATIONS, Chain, decoder_layer, language_model
from planner.workload.families.heads import named_head
from planner.workload.families.hybrid import RANK_DIVISOR
from planner.workload.layers import Layer
from planner.workload.passes import Norm
from planner.workload.selective_scan import SelectiveScan
from planner.workload.sizes import MAX_COUNT
from planner.workload.state_space import StateSpace

WITHOUT_COST: Final = (
    "time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme", "time_step_floor",
    "time_step_limit", "rescale_prenorm_residual", "use_mambapy", "use_associative_scan", "residual_in_fp32",
    "rms_norm", "fused_add_norm", "ssm_cfg", "d_model", "n_layer", "pad_vocab_size_multiple",
    "intermediate_size", "d_inner", "layer_norm_epsilon", "norm_before_gate",
)  # fmt: skip
"""Step sizes at the start, and kernels: no shape depends on them. The inner width follows from others."""


def read_mamba(keys: ConfigKeys) -> Chain:
    """Read a ``mamba`` config with the defaults of MambaConfig."""
    hidden = keys.size("hidden_size", 768)
    scan = SelectiveScan(
        hidden=hidden,
        inner=keys.times("expand", 2, hidden),
        state=keys.size("state_size", 16),
        rank=keys.size_or_auto("time_step_rank", -(-hidden // RANK_DIVISOR)),
        kernel=keys.size("conv_kernel", 4),
        bias=keys.flag("use_bias", default=False),
        convolution_bias=keys.flag("use_conv_bias", default=True),
    )
    layer = decoder_layer(scan, norm=Norm.RMS)
    return _chain(keys, layer, hidden=hidden, vocabulary=50280, num_layers=32, is_tied=True, prefix="Mamba")


def read_mamba2(keys: ConfigKeys) -> Chain:
    """Read a ``mamba2`` config with the defaults of Mamba2Config; its heads make up the inner width."""
    hidden, heads = keys.size("hidden_size", 4096), keys.size("num_heads", 128)
    head_dim, inner = keys.size("head_dim", 64), keys.times("expand", 2, hidden)
    groups = keys.size("n_groups", 8)
    if heads * head_dim != inner:
        keys.refuse(
            "num_heads",
            f"num_heads ({heads}) x head_dim ({head_dim}) must be expand x hidden_size ({inner})",
        )
    if heads % groups:
        keys.refuse("n_groups", f"num_heads ({heads}) must be a multiple of n_groups ({groups})")
    keys.ignore("time_step_rank")
    mixer = StateSpace(
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        state=keys.size("state_size", 128),
        groups=groups,
        kernel=keys.size("conv_kernel", 4),
        chunk=keys.size("chunk_size", 256),
        bias=keys.flag("use_bias", default=False),
        convolution_bias=keys.flag("use_conv_bias", default=True),
    )
    layer = decoder_layer(mixer, norm=Norm.RMS)
    return _chain(keys, layer, hidden=hidden, vocabulary=32768, num_layers=64, is_tied=False, prefix="Mamba2")


def _chain(
    keys: ConfigKeys,
    layer: Layer,
    *,
    hidden: int,
    vocabulary: int,
    num_layers: int,
    is_tied: bool,
    prefix: str,
) -> Chain:
    keys.ignore(*WITHOUT_COST)
    keys.choice("hidden_act", "silu", ACTIVATIONS)
    embedding = EmbeddingLayer(vocabulary=keys.size("vocab_size", vocabulary), hidden=hidden)
    head = named_head(keys, prefix, vocabulary=embedding.vocabulary, hidden=hidden, tied_by_default=is_tied)
    depth = keys.size("num_hidden_layers", num_layers, largest=MAX_COUNT)
    runs = language_model(embedding=embedding, decoders=[layer] * depth, norm=Norm.RMS, head=head)
    return Chain(runs=runs, sequence_length=None)
