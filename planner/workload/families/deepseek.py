"""DeepSeek V2 and V3, and GLM-4 MoE: many small experts after a few dense layers, extra prediction layers."""

from dataclasses import replace
from typing import Final

from planner.workload.block import BlockLayer
from planner.workload.branches import Branch
from planner.workload.config_keys import ConfigKeys
from planner.workload.experts import Experts
from planner.workload.families.decoder_only import ACTIVATIONS, MAX_POSITIONS, Chain, decoder_layers
from planner.workload.families.llama import whole_chain
from planner.workload.families.mixture import ROUTING, attention_of, read_top_k
from planner.workload.families.sizes import Defaults, Sizes, read_sizes
from planner.workload.latent_attention import LatentAttention
from planner.workload.mlp import Mlp
from planner.workload.passes import Norm
from planner.workload.prediction import PredictionLayer
from planner.workload.sizes import MAX_COUNT

DEEPSEEK_V2: Final = Defaults(vocab_size=102400, intermediate_size=11008, max_position_embeddings=2048)
DEEPSEEK_V3: Final = Defaults(
    vocab_size=129280,
    hidden_size=7168,
    intermediate_size=18432,
    num_hidden_layers=61,
    num_attention_heads=128,
    max_position_embeddings=4096,
)
GLM4_MOE: Final = Defaults(
    vocab_size=151552,
    hidden_size=4096,
    intermediate_size=10944,
    num_hidden_layers=46,
    num_attention_heads=96,
    num_key_value_heads=8,
    max_position_embeddings=131072,
    whole_heads=False,
)
DEEPSEEK_V2_OTHER_NAMES: Final = {"n_routed_experts": "num_experts"}
DEEPSEEK_OTHER_NAMES: Final = {
    "n_routed_experts": "num_local_experts",
    "num_nextn_predict_layers": "num_mtp_layers",
}
DEEPSEEK_V2_TOP_K: Final = 6
"""What DeepSeek-V2 was published with; its class has no default that would run."""


def read_deepseek_v2(keys: ConfigKeys) -> Chain:
    """Read a ``deepseek_v2`` config with the defaults of DeepseekV2Config."""
    sizes = _latent_sizes(keys, DEEPSEEK_V2)
    if not keys.has("num_experts_per_tok"):
        keys.assume("num_experts_per_tok")
    keys.expect("mlp_bias", False)  # noqa: FBT003 - the value that changes nothing
    routed = _experts(
        keys, sizes, experts=64, top_k=DEEPSEEK_V2_TOP_K, ffn=1407, shared=2, correction_bias=False
    )
    return _chain(
        keys, sizes, _latent_attention(keys, sizes), routed, dense=0, predictions=0, prefix="DeepseekV2"
    )


def read_deepseek_v3(keys: ConfigKeys) -> Chain:
    """Read a ``deepseek_v3`` config with the defaults of DeepseekV3Config."""
    sizes = _latent_sizes(keys, DEEPSEEK_V3)
    routed = _experts(keys, sizes, experts=256, top_k=8, ffn=2048, shared=1, correction_bias=True)
    return _chain(
        keys, sizes, _latent_attention(keys, sizes), routed, dense=3, predictions=1, prefix="DeepseekV3"
    )


def read_glm4_moe(keys: ConfigKeys) -> Chain:
    """Read a ``glm4_moe`` config with the defaults of Glm4MoeConfig: grouped-query attention."""
    sizes = read_sizes(keys, GLM4_MOE)
    attention = replace(
        attention_of(sizes, keys),
        qkv_bias=keys.flag("attention_bias", default=False),
        query_key_norm=keys.flag("use_qk_norm", default=False),
    )
    routed = _experts(keys, sizes, experts=128, top_k=8, ffn=1408, shared=1, correction_bias=True)
    return _chain(keys, sizes, attention, routed, dense=1, predictions=1, prefix="Glm4Moe")


def _latent_sizes(keys: ConfigKeys, defaults: Defaults) -> Sizes:
    """Read the sizes that have no key heads and no head width of the usual meaning."""
    keys.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    heads, hidden = (
        keys.size("num_attention_heads", defaults.num_attention_heads),
        keys.size("hidden_size", defaults.hidden_size),
    )
    keys.choice("hidden_act", "silu", ACTIVATIONS)
    return Sizes(
        vocabulary=keys.size("vocab_size", defaults.vocab_size),
        hidden=hidden,
        ffn=keys.size("intermediate_size", defaults.intermediate_size),
        num_layers=keys.size("num_hidden_layers", defaults.num_hidden_layers, largest=MAX_COUNT),
        heads=heads,
        kv_heads=heads,
        head_dim=keys.size("v_head_dim", 128),
        positions=keys.size(
            "max_position_embeddings", defaults.max_position_embeddings, largest=MAX_POSITIONS
        ),
        is_tied=keys.flag("tie_word_embeddings", default=False),
    )


def _latent_attention(keys: ConfigKeys, sizes: Sizes) -> LatentAttention:
    return LatentAttention(
        hidden=sizes.hidden,
        heads=sizes.heads,
        key_value_rank=keys.size("kv_lora_rank", 512),
        plain_dim=keys.size("qk_nope_head_dim", 128),
        rotary_dim=keys.size("qk_rope_head_dim", 64),
        value_dim=sizes.head_dim,
        query_rank=keys.size_or_none("q_lora_rank", 1536),
        bias=keys.flag("attention_bias", default=False),
        dropout=keys.probability("attention_dropout", 0.0),
    )


def _experts(
    keys: ConfigKeys, sizes: Sizes, *, experts: int, top_k: int, ffn: int, shared: int, correction_bias: bool
) -> Experts:
    """Read the experts; the shared ones are as many MLPs of the same width in one."""
    number, width = keys.size("n_routed_experts", experts), keys.size("moe_intermediate_size", ffn)
    keys.ignore(*ROUTING)
    return Experts(
        hidden=sizes.hidden,
        experts=number,
        top_k=read_top_k(keys, top_k, experts_key="n_routed_experts", experts=number),
        ffn=width,
        shared_ffn=keys.count("n_shared_experts", shared) * width,
        correction_bias=correction_bias,
    )


def _chain(
    keys: ConfigKeys,
    sizes: Sizes,
    attention: Branch,
    routed: Experts,
    *,
    dense: int,
    predictions: int,
    prefix: str,
) -> Chain:
    """Return first layers with an MLP, all others with experts, and what predicts further."""
    keys.expect("moe_layer_freq", 1)
    first, mlp = keys.count("first_k_dense_replace", dense), Mlp(hidden=sizes.hidden, ffn=sizes.ffn)
    feed_forwards = [mlp if place < first else routed for place in range(sizes.num_layers)]
    extra = PredictionLayer(
        block=BlockLayer(branches=(attention, routed), norm=Norm.RMS), vocabulary=sizes.vocabulary
    )
    decoders = decoder_layers([attention] * sizes.num_layers, feed_forwards, norm=Norm.RMS)
    return whole_chain(
        keys,
        sizes,
        decoders,
        norm=Norm.RMS,
        prefixes=[prefix],
        predictions=[extra] * keys.count("num_nextn_predict_layers", predictions),
    )
