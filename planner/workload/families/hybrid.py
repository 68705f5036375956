"""Hybrids of attention and what is linear in the sequence: Qwen3-Next, Jamba, Nemotron-H."""

from dataclasses import replace
from typing import Final

from planner.workload.block import BlockLayer
from planner.workload.branches import Branch
from planner.workload.config_keys import ConfigKeys
from planner.workload.delta_net import GatedDeltaNet
from planner.workload.experts import Experts
from planner.workload.families.decoder_only import ACTIVATIONS, Chain, decoder_layer, decoder_layers
from planner.workload.families.layer_types import FULL, LINEAR, every, read_layer_types
from planner.workload.families.llama import whole_chain
from planner.workload.families.mixture import ROUTING, attention_of, read_top_k, sparse_steps
from planner.workload.families.sizes import Defaults, Sizes, read_sizes
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.prediction import PredictionLayer
from planner.workload.selective_scan import SelectiveScan
from planner.workload.sizes import MAX_COUNT
from planner.workload.state_space import StateSpace

QWEN3_NEXT: Final = Defaults(
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=48,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=256,
    max_position_embeddings=32768,
)
JAMBA: Final = Defaults(
    vocab_size=65536,
    intermediate_size=14336,
    num_key_value_heads=8,
    max_position_embeddings=262144,
)
NEMOTRON_H: Final = Defaults(
    vocab_size=131072,
    intermediate_size=21504,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=4096,
    activation="mlp_hidden_act",
)
JAMBA_OTHER_NAMES: Final = {"num_experts": "num_local_experts"}
NEMOTRON_H_OTHER_NAMES: Final = {
    "layers_block_type": "layer_types",
    "n_routed_experts": "num_local_experts",
    "n_groups": "mamba_n_groups",
    "conv_kernel": "mamba_d_conv",
    "use_conv_bias": "mamba_conv_bias",
    "chunk_size": "mamba_chunk_size",
}
RANK_DIVISOR: Final = 16
"""The rank of Mamba's step sizes is a sixteenth of the width, where a config leaves it open."""
MIXERS: Final = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}
"""The letters of ``hybrid_override_pattern``."""
OLD_MIXERS: Final = {"mamba": LINEAR, "attention": FULL}
"""What older files call some mixers."""
NEMOTRON_H_BLOCKS: Final = (LINEAR, "moe", FULL, "mlp")
"""The blocks of a config that has none."""


def read_qwen3_next(keys: ConfigKeys) -> Chain:
    """Read a ``qwen3_next`` config with the defaults of Qwen3NextConfig: three linear layers, one full."""
    sizes, bias = read_sizes(keys, QWEN3_NEXT), keys.flag("attention_bias", default=False)
    keys.ignore(*ROUTING, "partial_rotary_factor", "rope_theta")
    rule = every(keys.size("full_attention_interval", 4), odd_one=FULL, others=LINEAR)
    types = read_layer_types(keys, sizes.num_layers, rule=rule, known=(FULL, LINEAR))
    experts = keys.size("num_experts", 512)
    routed = Experts(
        hidden=sizes.hidden,
        experts=experts,
        top_k=read_top_k(keys, 10, experts_key="num_experts", experts=experts),
        ffn=keys.size("moe_intermediate_size", 512),
        shared_ffn=keys.size("shared_expert_intermediate_size", 512),
        shared_gate=True,
    )
    full = replace(
        attention_of(sizes, keys), qkv_bias=bias, output_bias=bias, query_key_norm=True, gated=True
    )
    linear = _delta_net(keys, sizes)
    mixers: list[Branch] = [full if kind == FULL else linear for kind in types]
    decoders = decoder_layers(mixers, sparse_steps(keys, sizes, routed), norm=Norm.RMS)
    return whole_chain(keys, sizes, decoders, norm=Norm.RMS, prefixes=["Qwen3Next"])


def _delta_net(keys: ConfigKeys, sizes: Sizes) -> GatedDeltaNet:
    key_heads, value_heads = keys.size("linear_num_key_heads", 16), keys.size("linear_num_value_heads", 32)
    if value_heads % key_heads:
        keys.refuse(
            "linear_num_value_heads",
            f"linear_num_value_heads ({value_heads}) must be a multiple of "
            f"linear_num_key_heads ({key_heads})",
        )
    return GatedDeltaNet(
        hidden=sizes.hidden,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=keys.size("linear_key_head_dim", 128),
        value_dim=keys.size("linear_value_head_dim", 128),
        kernel=keys.size("linear_conv_kernel_dim", 4),
    )


def read_jamba(keys: ConfigKeys) -> Chain:
    """Read a ``jamba`` config with the defaults of JambaConfig: attention in every eighth layer."""
    sizes = read_sizes(keys, JAMBA)
    keys.ignore(*ROUTING, "use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep")
    keys.ignore("calc_logits_for_entire_prompt")
    attention, scan = replace(attention_of(sizes, keys), rotary=False), _jamba_scan(keys, sizes)
    is_attention = _in_period(keys, "attn_layer_period", "attn_layer_offset", 8, 4, sizes.num_layers)
    mixers: list[Branch] = [attention if marked else scan for marked in is_attention]
    decoders = decoder_layers(mixers, _jamba_feed_forwards(keys, sizes), norm=Norm.RMS)
    return whole_chain(keys, sizes, decoders, norm=Norm.RMS, prefixes=["Jamba"])


def _jamba_scan(keys: ConfigKeys, sizes: Sizes) -> SelectiveScan:
    return SelectiveScan(
        hidden=sizes.hidden,
        inner=keys.times("mamba_expand", 2, sizes.hidden),
        state=keys.size("mamba_d_state", 16),
        rank=keys.size_or_auto("mamba_dt_rank", -(-sizes.hidden // RANK_DIVISOR)),
        kernel=keys.size("mamba_d_conv", 4),
        bias=keys.flag("mamba_proj_bias", default=False),
        convolution_bias=keys.flag("mamba_conv_bias", default=True),
        norms=True,
    )


def _jamba_feed_forwards(keys: ConfigKeys, sizes: Sizes) -> list[Branch]:
    """Return experts in their period; one expert alone is an MLP."""
    experts, mlp = keys.size("num_experts", 16), Mlp(hidden=sizes.hidden, ffn=sizes.ffn)
    routed = Experts(
        hidden=sizes.hidden,
        experts=experts,
        top_k=read_top_k(keys, min(2, experts), experts_key="num_experts", experts=experts),
        ffn=sizes.ffn,
    )
    is_sparse = _in_period(keys, "expert_layer_period", "expert_layer_offset", 2, 1, sizes.num_layers)
    return [routed if marked and experts > 1 else mlp for marked in is_sparse]


def _in_period(
    keys: ConfigKeys, period_key: str, offset_key: str, period: int, offset: int, num_layers: int
) -> list[bool]:
    """Return which layers stand at an offset within a period."""
    every_so_many = keys.size(period_key, period, largest=MAX_COUNT)
    place_in_period = keys.count(offset_key, offset)
    if place_in_period >= every_so_many:
        message = f"{offset_key} ({place_in_period}) must be smaller than {period_key} ({every_so_many})"
        keys.refuse(offset_key, message)
    return [place % every_so_many == place_in_period for place in range(num_layers)]


def read_nemotron_h(keys: ConfigKeys) -> Chain:
    """Read a ``nemotron_h`` config with the defaults of NemotronHConfig: every block is one mixer."""
    types = _block_types(keys)
    sizes = replace(read_sizes(keys, NEMOTRON_H), num_layers=len(types))
    keys.ignore(*ROUTING, "use_mamba_kernels", "residual_in_fp32", "rescale_prenorm_residual", "expand")
    keys.ignore("num_logits_to_keep", "mamba_ssm_cache_dtype", "moe_shared_expert_overlap", "attention_bias")
    keys.ignore("time_step_min", "time_step_max", "time_step_limit", "time_step_floor", "time_step_rank")
    keys.ignore("mamba_proj_bias", "mamba_expand", "hidden_dropout")
    keys.choice("mamba_hidden_act", "silu", ACTIVATIONS)
    keys.expect("sliding_window")
    mixers: dict[str, Branch] = {
        LINEAR: _state_space(keys, sizes),
        FULL: replace(attention_of(sizes, keys), rotary=False),
        "mlp": Mlp(
            hidden=sizes.hidden, ffn=sizes.ffn, gated=False, bias=keys.flag("mlp_bias", default=False)
        ),
        "moe": _nemotron_experts(keys, sizes),
    }
    blocks = {kind: decoder_layer(mixer, norm=Norm.RMS) for kind, mixer in mixers.items()}
    return whole_chain(
        keys,
        sizes,
        [blocks[kind] for kind in types],
        norm=Norm.RMS,
        prefixes=["NemotronH"],
        predictions=_nemotron_predictions(keys, sizes, mixers),
    )


def _block_types(keys: ConfigKeys) -> tuple[str, ...]:
    """Return the mixer of every block: listed, by the letters of a pattern, or the class's own four."""
    keys.ignore("num_hidden_layers")
    pattern = keys.text("hybrid_override_pattern")
    if pattern is not None and not keys.has("layers_block_type"):
        if not pattern or set(pattern) - set(MIXERS):
            message = f"hybrid_override_pattern must be made of {' '.join(MIXERS)}"
            keys.refuse("hybrid_override_pattern", message)
        return tuple(MIXERS[letter] for letter in pattern)
    known = {*MIXERS.values(), *OLD_MIXERS}
    listed = keys.free_words("layers_block_type", NEMOTRON_H_BLOCKS, known)
    return tuple(OLD_MIXERS.get(kind, kind) for kind in listed)


def _state_space(keys: ConfigKeys, sizes: Sizes) -> StateSpace:
    heads, groups = keys.size("mamba_num_heads", 128), keys.size("n_groups", 8)
    if heads % groups:
        keys.refuse("n_groups", f"mamba_num_heads ({heads}) must be a multiple of n_groups ({groups})")
    return StateSpace(
        hidden=sizes.hidden,
        heads=heads,
        head_dim=keys.size("mamba_head_dim", 64),
        state=keys.size("ssm_state_size", 128),
        groups=groups,
        kernel=keys.size("conv_kernel", 4),
        chunk=keys.size("chunk_size", 128),
        bias=keys.flag("use_bias", default=False),
        convolution_bias=keys.flag("use_conv_bias", default=True),
    )


def _nemotron_experts(keys: ConfigKeys, sizes: Sizes) -> Experts:
    experts = keys.size("n_routed_experts", 8)
    keys.ignore("n_shared_experts")
    return Experts(
        hidden=sizes.hidden,
        experts=experts,
        top_k=read_top_k(keys, min(2, experts), experts_key="n_routed_experts", experts=experts),
        ffn=keys.size("moe_intermediate_size", 7688),
        gated=False,
        correction_bias=True,
        shared_ffn=keys.size("moe_shared_expert_intermediate_size", 7688),
        latent=keys.size_or_none("moe_latent_size", None),
    )


def _nemotron_predictions(keys: ConfigKeys, sizes: Sizes, mixers: dict[str, Branch]) -> list[PredictionLayer]:
    """Return the extra prediction layers, whose mixers are listed or attention and experts."""
    number = keys.count("num_nextn_predict_layers", 0)
    keys.ignore("mtp_hybrid_override_pattern")
    listed = keys.free_words("mtp_layers_block_type", (FULL, "moe"), {*MIXERS.values(), *OLD_MIXERS})
    branches = tuple(mixers[OLD_MIXERS.get(kind, kind)] for kind in listed)
    if not number:
        return []
    block = BlockLayer(branches=branches, norm=Norm.RMS)
    return [PredictionLayer(block=block, vocabulary=sizes.vocabulary)] * number
