"""Our count of every family's parameters is that of its class in transformers."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InvalidRequest
from planner.workload.huggingface import FAMILIES, workload_from_config
from tests.unit.planner.workload.families.library import library_buffers, library_parameters

Config = Mapping[str, object]

WHOLE: list[Config] = [
    {"model_type": "bert"},
    {"model_type": "bert", "architectures": ["BertModel"]},
    {"model_type": "bert", "architectures": ["BertForPreTraining"]},
    {"model_type": "bert", "architectures": ["BertForNextSentencePrediction"]},
    {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_labels": 5},
    {"model_type": "bert", "architectures": ["BertForTokenClassification"]},
    {"model_type": "bert", "architectures": ["BertForQuestionAnswering"]},
    {"model_type": "bert", "architectures": ["BertForMultipleChoice"], "is_decoder": True},
    {"model_type": "bloom"},
    {"model_type": "bloom", "n_embed": 128, "architectures": ["BloomModel"]},
    {"model_type": "deepseek_v2", "num_experts_per_tok": 6},
    {
        "model_type": "deepseek_v2",
        "num_experts_per_tok": 6,
        "q_lora_rank": None,
        "attention_bias": True,
        "first_k_dense_replace": 1,
    },
    {"model_type": "deepseek_v3"},
    {"model_type": "deepseek_v3", "num_nextn_predict_layers": 3, "architectures": ["DeepseekV3Model"]},
    {"model_type": "efficientnet"},
    {"model_type": "efficientnet", "architectures": ["EfficientNetModel"], "image_size": [240, 240]},
    {
        "model_type": "efficientnet",
        "width_coefficient": 1.1,
        "depth_coefficient": 1.2,
        "hidden_dim": 1408,
        "expand_ratios": [1, 4, 1, 6, 6, 6, 6],
        "squeeze_expansion_ratio": 0.1,
    },
    {"model_type": "falcon"},
    {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 1},
    {
        "model_type": "falcon",
        "new_decoder_architecture": True,
        "num_ln_in_parallel_attn": 1,
        "num_kv_heads": 1,
    },
    {"model_type": "falcon", "multi_query": False, "bias": True, "alibi": True},
    {"model_type": "falcon", "parallel_attn": False, "ffn_hidden_size": None},
    {"model_type": "gemma"},
    {"model_type": "gemma2", "attention_bias": True},
    {"model_type": "gemma3"},
    {
        "model_type": "gemma3",
        "tie_word_embeddings": False,
        "vision_config": {"vision_use_head": False, "image_size": 896, "patch_size": 14},
    },
    {"model_type": "gemma3", "architectures": ["Gemma3Model"]},
    {"model_type": "gemma3_text", "tie_word_embeddings": False},
    {"model_type": "gemma3_text", "architectures": ["Gemma3TextModel"]},
    {"model_type": "glm4_moe"},
    {"model_type": "glm4_moe", "attention_bias": True, "use_qk_norm": True},
    {"model_type": "gpt2"},
    {"model_type": "gpt2", "architectures": ["GPT2Model"]},
    {"model_type": "gpt2", "architectures": ["GPT2ForTokenClassification"], "num_labels": 5},
    {"model_type": "gpt_neox"},
    {"model_type": "gpt_neox", "use_parallel_residual": False, "attention_bias": False},
    {"model_type": "gpt_oss"},
    {"model_type": "gpt_oss", "attention_bias": False},
    {"model_type": "gptj"},
    {"model_type": "gptj", "architectures": ["GPTJForQuestionAnswering"]},
    {"model_type": "jamba"},
    {
        "model_type": "jamba",
        "num_experts": 1,
        "mamba_proj_bias": True,
        "mamba_conv_bias": False,
        "mamba_dt_rank": 100,
    },
    {"model_type": "llama"},
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    {"model_type": "llama", "architectures": ["LlamaModel"]},
    {
        "model_type": "llama",
        "architectures": ["LlamaForSequenceClassification"],
        "id2label": {0: "a", 1: "b", 2: "c"},
    },
    {"model_type": "llama4"},
    {
        "model_type": "llama4",
        "text_config": {"num_hidden_layers": 2, "tie_word_embeddings": True},
        "vision_config": {"hidden_size": 1408, "num_hidden_layers": 2, "vision_output_dim": 4096},
    },
    {"model_type": "llama4_text"},
    {"model_type": "llama4_text", "interleave_moe_layer_step": 2},
    {"model_type": "llama4_text", "moe_layers": [1, 5], "attention_bias": True},
    {"model_type": "llava"},
    {
        "model_type": "llava",
        "architectures": ["LlavaModel"],
        "text_config": {
            "model_type": "qwen2",
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
        },
        "vision_config": {"model_type": "siglip_vision_model", "num_hidden_layers": 2},
    },
    {
        "model_type": "llava",
        "text_config": {"model_type": "mistral", "tie_word_embeddings": True},
        "vision_config": {"model_type": "clip_vision_model"},
        "vision_feature_layer": [-2, -3],
        "multimodal_projector_bias": False,
    },
    {"model_type": "mamba"},
    {"model_type": "mamba", "use_bias": True, "time_step_rank": 10},
    {"model_type": "mamba2"},
    {"model_type": "mamba2", "use_bias": True, "use_conv_bias": False, "architectures": ["Mamba2Model"]},
    {"model_type": "mistral"},
    {"model_type": "mixtral"},
    {"model_type": "mpt"},
    {"model_type": "nemotron", "num_key_value_heads": 8},
    {"model_type": "nemotron_h"},
    {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-EM", "moe_latent_size": 512},
    {"model_type": "nemotron_h", "layers_block_type": ["mamba", "attention", "mlp"], "use_bias": True},
    {"model_type": "nemotron_h", "mlp_bias": True, "hybrid_override_pattern": "M-*"},
    {"model_type": "opt"},
    {"model_type": "opt", "enable_bias": False, "layer_norm_elementwise_affine": False},
    {"model_type": "opt", "hidden_size": 1024, "num_attention_heads": 16, "word_embed_proj_dim": 512},
    {"model_type": "opt", "do_layer_norm_before": False, "architectures": ["OPTForSequenceClassification"]},
    {"model_type": "phi3"},
    {"model_type": "qwen2"},
    {"model_type": "qwen2_5_vl"},
    {
        "model_type": "qwen2_5_vl",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "intermediate_size": 11008,
        "num_hidden_layers": 4,
        "tie_word_embeddings": True,
        "vision_config": {"depth": 4, "hidden_size": 1280, "out_hidden_size": 2048},
    },
    {"model_type": "qwen2_moe"},
    {"model_type": "qwen2_moe", "qkv_bias": False, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    {"model_type": "qwen2_vl"},
    {
        "model_type": "qwen2_vl",
        "architectures": ["Qwen2VLModel"],
        "text_config": {"num_hidden_layers": 2},
        "vision_config": {"depth": 2},
    },
    {"model_type": "qwen3", "attention_bias": True},
    {"model_type": "qwen3_moe"},
    {"model_type": "qwen3_moe", "attention_bias": True, "head_dim": 128, "num_experts": 64},
    {"model_type": "qwen3_next"},
    {"model_type": "qwen3_next", "attention_bias": True, "full_attention_interval": 3},
    {"model_type": "resnet"},
    {"model_type": "resnet", "architectures": ["ResNetModel"], "layer_type": "basic"},
    {
        "model_type": "resnet",
        "downsample_in_bottleneck": True,
        "downsample_in_first_stage": True,
        "hidden_act": "silu",
        "num_labels": 10,
    },
    {"model_type": "roberta"},
    {"model_type": "roberta", "architectures": ["RobertaModel"]},
    {"model_type": "roberta", "architectures": ["RobertaForSequenceClassification"]},
    {"model_type": "starcoder2"},
    {"model_type": "starcoder2", "use_bias": False},
    {"model_type": "t5"},
    {
        "model_type": "t5",
        "feed_forward_proj": "gated-gelu",
        "num_decoder_layers": 3,
        "tie_word_embeddings": False,
    },
    {"model_type": "t5", "architectures": ["T5EncoderModel"]},
    {"model_type": "t5", "architectures": ["T5Model"]},
    {"model_type": "t5", "architectures": ["T5ForSequenceClassification"]},
    {"model_type": "t5", "architectures": ["T5ForQuestionAnswering"]},
    {"model_type": "t5", "architectures": ["T5ForTokenClassification"]},
    {"model_type": "vit"},
    {"model_type": "vit", "architectures": ["ViTModel"]},
    {"model_type": "vit", "num_labels": 1000, "qkv_bias": False, "image_size": 100},
]
"""Class defaults, and every switch that changes a count."""

GPT2_KEYS = {"hidden": "n_embd", "layers": "n_layer", "heads": "n_head", "ffn": "n_inner"}
LLAMA_KEYS = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size",
}
KEYS: Mapping[str, Mapping[str, str]] = {
    "bert": LLAMA_KEYS,
    "bloom": {"hidden": "hidden_size", "layers": "n_layer", "heads": "n_head"},
    "falcon": {
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn": "ffn_hidden_size",
    },
    "gemma": LLAMA_KEYS,
    "gemma2": LLAMA_KEYS,
    "gemma3_text": LLAMA_KEYS,
    "gpt2": GPT2_KEYS,
    "gpt_neox": LLAMA_KEYS,
    "gptj": GPT2_KEYS,
    "llama": LLAMA_KEYS,
    "mistral": LLAMA_KEYS,
    "mpt": {"hidden": "d_model", "layers": "n_layers", "heads": "n_heads"},
    "nemotron": LLAMA_KEYS,
    "opt": {
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn": "ffn_dim",
    },
    "phi3": LLAMA_KEYS,
    "qwen2": LLAMA_KEYS,
    "qwen3": LLAMA_KEYS,
    "roberta": LLAMA_KEYS,
    "starcoder2": LLAMA_KEYS,
    "t5": {"hidden": "d_model", "layers": "num_layers", "heads": "num_heads", "ffn": "d_ff"},
    "vit": LLAMA_KEYS,
    **dict.fromkeys(
        (
            "deepseek_v2", "deepseek_v3", "glm4_moe", "gpt_oss", "jamba", "llama4_text", "mixtral",
            "nemotron_h", "qwen2_moe", "qwen3_moe", "qwen3_next",
        ),
        LLAMA_KEYS,
    ),
    "mamba": {"hidden": "hidden_size", "layers": "num_hidden_layers"},
}  # fmt: skip
"""How each family calls what is perturbed."""
LATENTS = {
    "q_lora_rank": st.none() | st.integers(4, 40),
    "kv_lora_rank": st.integers(4, 40),
    "qk_nope_head_dim": st.integers(2, 20),
    "qk_rope_head_dim": st.integers(1, 10).map(lambda half: 2 * half),
    "v_head_dim": st.integers(2, 20),
}
SMALL_EXPERTS = {
    "n_routed_experts": st.integers(4, 12),
    "num_experts_per_tok": st.integers(1, 4),
    "moe_intermediate_size": st.integers(4, 50),
    "n_shared_experts": st.integers(1, 3),
    "first_k_dense_replace": st.integers(0, 3),
    "n_group": st.just(1),
    "topk_group": st.just(1),
}
MORE: Mapping[str, Mapping[str, st.SearchStrategy[object]]] = {
    "bert": {"max_position_embeddings": st.integers(8, 40), "type_vocab_size": st.integers(1, 3)},
    "deepseek_v2": {**LATENTS, **SMALL_EXPERTS},
    "deepseek_v3": {**LATENTS, **SMALL_EXPERTS},
    "glm4_moe": SMALL_EXPERTS,
    "gpt_oss": {"num_local_experts": st.integers(4, 12), "num_experts_per_tok": st.integers(1, 4)},
    "jamba": {
        "num_experts": st.integers(1, 6),
        "num_experts_per_tok": st.just(1),
        "mamba_d_state": st.integers(2, 8),
        "mamba_d_conv": st.integers(2, 4),
        "mamba_expand": st.integers(1, 3),
        "attn_layer_period": st.integers(3, 5),
        "attn_layer_offset": st.integers(0, 2),
    },
    "llama4_text": {
        "num_local_experts": st.integers(4, 12),
        "intermediate_size_mlp": st.integers(4, 50),
        "interleave_moe_layer_step": st.integers(1, 3),
    },
    "mamba": {
        "state_size": st.integers(2, 8),
        "expand": st.integers(1, 3),
        "conv_kernel": st.integers(2, 4),
        "use_conv_bias": st.booleans(),
    },
    "mixtral": {"num_local_experts": st.integers(4, 12), "num_experts_per_tok": st.integers(1, 4)},
    "nemotron_h": {
        "hybrid_override_pattern": st.text("M*-E", min_size=1, max_size=7),
        "ssm_state_size": st.integers(2, 8),
        "n_groups": st.integers(1, 3),
        "mamba_num_heads": st.integers(1, 3).map(lambda times: 6 * times),
        "mamba_head_dim": st.integers(2, 8),
        "moe_intermediate_size": st.integers(4, 50),
        "moe_shared_expert_intermediate_size": st.integers(4, 50),
        "moe_latent_size": st.none() | st.integers(4, 50),
    },
    "qwen2_moe": {
        "num_experts": st.integers(4, 12),
        "moe_intermediate_size": st.integers(4, 50),
        "shared_expert_intermediate_size": st.integers(4, 50),
        "decoder_sparse_step": st.integers(1, 3),
    },
    "qwen3_moe": {
        "num_experts": st.integers(8, 12),
        "moe_intermediate_size": st.integers(4, 50),
        "mlp_only_layers": st.lists(st.integers(0, 6)),
    },
    "qwen3_next": {
        "num_experts": st.integers(10, 12),
        "moe_intermediate_size": st.integers(4, 50),
        "shared_expert_intermediate_size": st.integers(4, 50),
        "full_attention_interval": st.integers(2, 4),
        "linear_num_key_heads": st.integers(1, 3),
        "linear_num_value_heads": st.sampled_from([6, 12]),
        "linear_key_head_dim": st.integers(2, 16),
        "linear_value_head_dim": st.integers(2, 16),
    },
    "t5": {
        "d_kv": st.integers(2, 20),
        "num_decoder_layers": st.none() | st.integers(1, 4),
        "relative_attention_num_buckets": st.integers(4, 40),
        "feed_forward_proj": st.sampled_from(["relu", "gated-gelu", "gated-silu"]),
    },
    "vit": {
        "image_size": st.integers(32, 64),
        "patch_size": st.integers(4, 32),
        "num_channels": st.integers(1, 4),
        "num_labels": st.integers(2, 9),
    },
}
"""What else changes a family's count."""
OWN_HEAD_DIM = {
    "gemma", "gemma2", "gemma3_text", "glm4_moe", "gpt_oss", "llama", "llama4_text", "mistral", "mixtral",
    "nemotron", "nemotron_h", "qwen3", "qwen3_moe", "qwen3_next",
}  # fmt: skip
"""Families whose heads may have a width of their own."""


@st.composite
def perturbed(draw: st.DrawFn, family: str) -> Config:
    """Return a small config of a family: any depth, width, heads, MLP and vocabulary that fit."""
    keys = KEYS[family]
    kv_heads, group, head_dim = draw(st.integers(1, 4)), draw(st.integers(1, 3)), 2 * draw(st.integers(2, 12))
    values = {
        "hidden": kv_heads * group * head_dim,
        "layers": draw(st.integers(1, 7)),
        "heads": kv_heads * group,
        "kv_heads": kv_heads,
        "ffn": draw(st.integers(4, 300)),
    }
    config: dict[str, Any] = {keys[name]: value for name, value in values.items() if name in keys}
    if family in OWN_HEAD_DIM:
        config["head_dim"] = 2 * draw(st.integers(2, 20))
    if family == "gptj":
        config["rotary_dim"] = 2
    config |= {key: draw(values) for key, values in MORE.get(family, {}).items()}
    tokens = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    return {"model_type": family, "vocab_size": draw(st.integers(60, 500)), **tokens, **config}


@st.composite
def perturbed_vision_language(draw: st.DrawFn, family: str) -> Config:
    """Return a small config of a model that sees: any text and any tower."""
    text = {**draw(perturbed(TEXT_OF[family])), "vocab_size": 300, "tie_word_embeddings": draw(st.booleans())}
    heads, head_dim = draw(st.integers(1, 3)), 4 * draw(st.integers(1, 4))
    depth, width = draw(st.integers(1, 4)), heads * head_dim
    if family.startswith("qwen2"):
        text.pop("model_type")
        wide = "embed_dim" if family == "qwen2_vl" else "hidden_size"
        vision: dict[str, object] = {
            "depth": depth,
            wide: width,
            "num_heads": heads,
            "spatial_merge_size": draw(st.integers(1, 3)),
        }
    else:
        vision = {
            "num_hidden_layers": depth,
            "hidden_size": width,
            "num_attention_heads": heads,
            "intermediate_size": draw(st.integers(4, 50)),
            "image_size": draw(st.integers(32, 64)),
            "patch_size": draw(st.integers(4, 16)),
        }
        if family == "llava":
            vision["model_type"] = draw(st.sampled_from(["clip_vision_model", "siglip_vision_model"]))
    return {"model_type": family, "text_config": text, "vision_config": vision}


TEXT_OF = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2",
}
"""The family of the text of a model that sees."""


@pytest.mark.parametrize("family", TEXT_OF)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_count_of_text_and_tower_is_the_librarys(family: str, data: st.DataObject) -> None:
    config = data.draw(perturbed_vision_language(family))
    assert workload_from_config(config).parameters == library_parameters(config)


@st.composite
def perturbed_resnet(draw: st.DrawFn) -> Config:
    """Return a small ResNet: any form, stages, widths and depths."""
    stages = draw(st.integers(1, 5))
    return {
        "model_type": "resnet",
        "num_channels": draw(st.integers(1, 4)),
        "embedding_size": draw(st.integers(1, 20)),
        "hidden_sizes": draw(st.lists(st.integers(4, 40), min_size=stages, max_size=stages)),
        "depths": draw(st.lists(st.integers(1, 3), min_size=stages, max_size=stages)),
        "layer_type": draw(st.sampled_from(["basic", "bottleneck"])),
        "downsample_in_first_stage": draw(st.booleans()),
        "downsample_in_bottleneck": draw(st.booleans()),
    }


@st.composite
def perturbed_efficientnet(draw: st.DrawFn) -> Config:
    """Return an EfficientNet of any width and depth whose stages fit one another."""
    stages, divisor = draw(st.integers(1, 5)), draw(st.sampled_from([4, 8]))
    width = draw(st.floats(0.3, 2.5))

    def of_stages(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=stages, max_size=stages))

    outputs = of_stages(st.integers(8, 40))
    config = {
        "model_type": "efficientnet",
        "width_coefficient": width,
        "depth_coefficient": draw(st.floats(0.3, 3.5)),
        "depth_divisor": divisor,
        "kernel_sizes": of_stages(st.sampled_from([3, 5, 7])),
        "in_channels": [32, *outputs[:-1]],
        "out_channels": outputs,
        "strides": of_stages(st.integers(1, 2)),
        "num_block_repeats": of_stages(st.integers(1, 3)),
        "expand_ratios": of_stages(st.integers(1, 6)),
        "squeeze_expansion_ratio": draw(st.floats(0.01, 1)),
    }
    return {**config, "hidden_dim": legal_hidden_dim(config)}


def legal_hidden_dim(config: Config) -> object:
    """Return the width of the last convolution, which a refusal of another names."""
    with pytest.raises(InvalidRequest) as caught:
        workload_from_config({**config, "hidden_dim": 1})
    return caught.value.nearest_legal[0]


@pytest.mark.parametrize(
    "configs", [perturbed_resnet(), perturbed_efficientnet()], ids=["resnet", "efficient"]
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_counts_of_a_convolutional_network_are_the_librarys(
    configs: st.SearchStrategy[Config], data: st.DataObject
) -> None:
    config = data.draw(configs)
    workload = workload_from_config(config)
    assert workload.parameters == library_parameters(config)
    assert workload.buffers == library_buffers(config)


def test_every_family_is_counted() -> None:
    counted = {str(config["model_type"]) for config in WHOLE}
    assert counted == FAMILIES.keys()
    assert KEYS.keys() | TEXT_OF.keys() | {"efficientnet", "mamba2", "resnet"} == FAMILIES.keys()


@pytest.mark.parametrize("config", WHOLE, ids=str)
def test_the_count_is_the_librarys(config: Config) -> None:
    workload = workload_from_config(config)
    assert workload.parameters == library_parameters(config)
    assert workload.not_understood == ()


@pytest.mark.parametrize("family", KEYS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_count_is_the_librarys_at_any_width_and_depth(family: str, data: st.DataObject) -> None:
    config = data.draw(perturbed(family))
    assert workload_from_config(config).parameters == library_parameters(config)
