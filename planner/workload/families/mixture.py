"""Mixtures of experts over grouped-query attention: Mixtral, Qwen 2 and 3 MoE, gpt-oss, Llama 4."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planner.workload.branches import Branch
from planner.workload.config_keys import ConfigKeys
from planner.workload.experts import Experts
from planner.workload.families.decoder_only import Chain, decoder_layers
from planner.workload.families.layer_types import CHUNKED, FULL, SLIDING, every, read_layer_types
from planner.workload.families.llama import whole_chain
from planner.workload.families.sizes import Defaults, Sizes, read_sizes
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.self_attention import SelfAttention
from planner.workload.sizes import MAX_COUNT

MIXTRAL: Final = Defaults(
    vocab_size=32000, intermediate_size=14336, num_key_value_heads=8, max_position_embeddings=4096 * 32
)
QWEN2_MOE: Final = Defaults(
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=24,
    num_attention_heads=16,
    num_key_value_heads=16,
    max_position_embeddings=32768,
)
QWEN3_MOE: Final = Defaults(
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=6144,
    num_hidden_layers=24,
    num_key_value_heads=4,
    max_position_embeddings=32768,
)
GPT_OSS: Final = Defaults(
    vocab_size=201088,
    hidden_size=2880,
    intermediate_size=2880,
    num_hidden_layers=36,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=64,
    max_position_embeddings=131072,
)
LLAMA4: Final = Defaults(
    vocab_size=202048,
    hidden_size=5120,
    intermediate_size=8192,
    num_hidden_layers=48,
    num_attention_heads=40,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=4096 * 32,
)
EXPERTS_OTHER_NAMES: Final = {"num_local_experts": "num_experts"}
ROUTING: Final = (
    "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "norm_topk_prob",
    "routed_scaling_factor", "scoring_func", "topk_method", "n_group", "topk_group", "aux_loss_alpha",
    "seq_aux", "ep_size", "swiglu_alpha", "swiglu_limit", "initial_context_length", "experts_per_token",
    "moe_router_dtype",
)  # fmt: skip
"""How a router scores and balances: no shape depends on it."""


def attention_of(sizes: Sizes, keys: ConfigKeys) -> SelfAttention:
    """Return the attention that these sizes say, with the dropout of the config."""
    return SelfAttention(
        hidden=sizes.hidden,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        dropout=keys.probability("attention_dropout", 0.0),
    )


def read_top_k(keys: ConfigKeys, default: int, *, experts_key: str, experts: int) -> int:
    """Return the experts per token, of which there are not more than experts."""
    top_k = keys.size("num_experts_per_tok", default, null=default)
    if top_k > experts:
        message = f"num_experts_per_tok ({top_k}) must be at most {experts_key} ({experts})"
        keys.refuse("num_experts_per_tok", message, nearest_legal=[experts])
    return top_k


def read_mixtral(keys: ConfigKeys) -> Chain:
    """Read a ``mixtral`` config with the defaults of MixtralConfig: experts in every layer."""
    sizes, experts = read_sizes(keys, MIXTRAL), keys.size("num_local_experts", 8)
    attention = replace(attention_of(sizes, keys), window=keys.size_or_none("sliding_window", None))
    routed = Experts(
        hidden=sizes.hidden,
        experts=experts,
        top_k=read_top_k(keys, 2, experts_key="num_local_experts", experts=experts),
        ffn=sizes.ffn,
    )
    return _chain(keys, sizes, [attention] * sizes.num_layers, [routed] * sizes.num_layers, "Mixtral")


def read_qwen2_moe(keys: ConfigKeys) -> Chain:
    """Read a ``qwen2_moe`` config with the defaults of Qwen2MoeConfig: a gated shared expert."""
    sizes, bias = read_sizes(keys, QWEN2_MOE), keys.flag("qkv_bias", default=True)
    experts = keys.size("num_experts", 60)
    routed = Experts(
        hidden=sizes.hidden,
        experts=experts,
        top_k=read_top_k(keys, 4, experts_key="num_experts", experts=experts),
        ffn=keys.size("moe_intermediate_size", 1408),
        shared_ffn=keys.size("shared_expert_intermediate_size", 5632),
        shared_gate=True,
    )
    attention = replace(attention_of(sizes, keys), qkv_bias=bias)
    attentions = [replace(attention, window=window) for window in _qwen2_moe_windows(keys, sizes.num_layers)]
    return _chain(keys, sizes, attentions, sparse_steps(keys, sizes, routed), "Qwen2Moe")


def _qwen2_moe_windows(keys: ConfigKeys, num_layers: int) -> list[int | None]:
    """Return windows for every other of the first layers, where they are switched on."""
    is_on = keys.flag("use_sliding_window", default=False)
    window = keys.size_or_none("sliding_window", 4096) if is_on else None
    first, sparse = keys.count("max_window_layers", 28), every(2, odd_one=FULL, others=SLIDING)
    keys.ignore("sliding_window")

    def rule(place: int) -> str:
        return sparse(place) if is_on and place < first else FULL

    types = read_layer_types(keys, num_layers, rule=rule, known=(FULL, SLIDING))
    return [window if kind == SLIDING else None for kind in types]


def read_qwen3_moe(keys: ConfigKeys) -> Chain:
    """Read a ``qwen3_moe`` config with the defaults of Qwen3MoeConfig: heads of Q and K are normalised."""
    sizes, bias = read_sizes(keys, QWEN3_MOE), keys.flag("attention_bias", default=False)
    is_windowed = keys.flag("use_sliding_window", default=False)
    window = keys.size_or_none("sliding_window", 4096) if is_windowed else None
    keys.ignore("sliding_window", "max_window_layers")
    experts = keys.size("num_local_experts", 128)
    routed = Experts(
        hidden=sizes.hidden,
        experts=experts,
        top_k=read_top_k(keys, 8, experts_key="num_experts", experts=experts),
        ffn=keys.size("moe_intermediate_size", 768),
    )
    attention = replace(
        attention_of(sizes, keys), qkv_bias=bias, output_bias=bias, query_key_norm=True, window=window
    )
    attentions = [attention] * sizes.num_layers
    return _chain(keys, sizes, attentions, sparse_steps(keys, sizes, routed), "Qwen3Moe")


def sparse_steps(keys: ConfigKeys, sizes: Sizes, routed: Experts) -> list[Branch]:
    """Return experts in every ``decoder_sparse_step``-th layer but ``mlp_only_layers``, MLPs in others."""
    step = keys.size("decoder_sparse_step", 1, largest=MAX_COUNT)
    dense_places, mlp = keys.places("mlp_only_layers", ()), Mlp(hidden=sizes.hidden, ffn=sizes.ffn)
    return [
        mlp if place in dense_places or (place + 1) % step else routed for place in range(sizes.num_layers)
    ]


def read_gpt_oss(keys: ConfigKeys) -> Chain:
    """Read a ``gpt_oss`` config with the defaults of GptOssConfig: sinks, biases, windows in turn."""
    sizes, bias = read_sizes(keys, GPT_OSS), keys.flag("attention_bias", default=True)
    window, experts = keys.size_or_none("sliding_window", 128), keys.size("num_local_experts", 128)
    rule = every(2, odd_one=FULL, others=SLIDING)
    types = read_layer_types(keys, sizes.num_layers, rule=rule, known=(FULL, SLIDING))
    routed = Experts(
        hidden=sizes.hidden,
        experts=experts,
        top_k=read_top_k(keys, 4, experts_key="num_local_experts", experts=experts),
        ffn=sizes.ffn,
        bias=True,
        router_bias=True,
    )
    attention = replace(attention_of(sizes, keys), qkv_bias=bias, output_bias=bias, sinks=True)
    attentions = [replace(attention, window=window if kind == SLIDING else None) for kind in types]
    return _chain(keys, sizes, attentions, [routed] * sizes.num_layers, "GptOss")


def read_llama4_text(keys: ConfigKeys) -> Chain:
    """Read a ``llama4_text`` config with the defaults of Llama4TextConfig: chunks, one expert per token."""
    sizes, experts = read_sizes(keys, LLAMA4), keys.size("num_local_experts", 16)
    step = keys.size("interleave_moe_layer_step", 1, largest=MAX_COUNT)
    sparse_places = keys.places("moe_layers", range(step - 1, sizes.num_layers, step))
    routed = Experts(
        hidden=sizes.hidden,
        experts=experts,
        top_k=read_top_k(keys, 1, experts_key="num_local_experts", experts=experts),
        ffn=sizes.ffn,
        shared_ffn=sizes.ffn,
    )
    mlp = Mlp(hidden=sizes.hidden, ffn=keys.size("intermediate_size_mlp", 16384))
    feed_forwards = [routed if place in sparse_places else mlp for place in range(sizes.num_layers)]
    keys.ignore("use_qk_norm", "attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor")
    return _chain(keys, sizes, _llama4_attentions(keys, sizes), feed_forwards, "Llama4", "Llama4Text")


def _llama4_attentions(keys: ConfigKeys, sizes: Sizes) -> list[SelfAttention]:
    """Return attention in chunks where positions are rotated, over everything in each fourth layer."""
    interval, bias = keys.size("no_rope_layer_interval", 4), keys.flag("attention_bias", default=False)
    chunk = keys.size_or_none("attention_chunk_size", 8192)
    default = [bool((place + 1) % interval) for place in range(sizes.num_layers)]
    rotary = keys.marks("no_rope_layers", default)

    def rule(place: int) -> str:
        return CHUNKED if rotary[place] and chunk is not None else FULL

    types = read_layer_types(keys, sizes.num_layers, rule=rule, known=(FULL, CHUNKED))
    attention = replace(attention_of(sizes, keys), qkv_bias=bias, output_bias=bias)
    return [
        replace(attention, rotary=is_rotary, chunk=chunk if kind == CHUNKED else None)
        for is_rotary, kind in zip(rotary, types, strict=True)
    ]


def _chain(
    keys: ConfigKeys, sizes: Sizes, mixers: Sequence[Branch], feed_forwards: Sequence[Branch], *prefixes: str
) -> Chain:
    keys.ignore(*ROUTING)
    decoders = decoder_layers(mixers, feed_forwards, norm=Norm.RMS)
    return whole_chain(keys, sizes, decoders, norm=Norm.RMS, prefixes=prefixes)
