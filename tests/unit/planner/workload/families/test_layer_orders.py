"""Windows, experts and mixers stand in the layers that a config.json says."""

from collections.abc import Mapping

import pytest

from planner.workload.block import BlockLayer
from planner.workload.delta_net import GatedDeltaNet
from planner.workload.experts import Experts
from planner.workload.huggingface import workload_from_config
from planner.workload.mlp import Mlp
from planner.workload.selective_scan import SelectiveScan
from planner.workload.self_attention import SelfAttention
from planner.workload.state_space import StateSpace
from planner.workload.transformer import DecoderLayer
from tests.unit.planner.workload.families.configs import refusal


def windows(config: Mapping[str, object]) -> list[int | None]:
    runs = workload_from_config(config).runs
    layers = [run.layer for run in runs for _ in range(run.count)]
    return [layer.window for layer in layers if isinstance(layer, DecoderLayer)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "mistral"}, [4096] * 32),
        ({"model_type": "mistral", "sliding_window": None}, [None] * 32),
        ({"model_type": "qwen2", "sliding_window": 64}, [None] * 32),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64},
            [None] * 28 + [64] * 4,
        ),
        ({"model_type": "gemma2", "num_hidden_layers": 4}, [4096, None, 4096, None]),
        ({"model_type": "gemma3_text", "num_hidden_layers": 7}, [4096] * 5 + [None, 4096]),
        (
            {"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window_pattern": 2},
            [4096, None, 4096, None],
        ),
        (
            {
                "model_type": "gemma2",
                "num_hidden_layers": 2,
                "sliding_window": 8,
                "layer_types": ["full_attention", "sliding_attention"],
            },
            [None, 8],
        ),
    ],
)
def test_windows_stand_where_the_config_or_its_class_has_them(
    config: Mapping[str, object], expected: list[int | None]
) -> None:
    assert windows(config) == expected


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"layer_types": ["half_attention"] * 26}, "layer_types"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"head_dim": None}, "head_dim"),
    ],
)
def test_absurd_layer_types_are_refused_at_their_key(changes: dict[str, object], key: str) -> None:
    assert refusal({"model_type": "gemma2", **changes}).pointer == f"/model/huggingface/{key}"


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"model_type": "mixtral", "num_local_experts": 0}, "num_local_experts"),
        ({"model_type": "mixtral", "num_experts": -1}, "num_experts"),
        ({"model_type": "qwen2_moe", "mlp_only_layers": 3}, "mlp_only_layers"),
        ({"model_type": "qwen2_moe", "mlp_only_layers": [-1]}, "mlp_only_layers"),
        ({"model_type": "qwen2_moe", "decoder_sparse_step": 0}, "decoder_sparse_step"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": None}, "kv_lora_rank"),
        ({"model_type": "deepseek_v3", "n_shared_experts": -1}, "n_shared_experts"),
        ({"model_type": "deepseek_v3", "num_nextn_predict_layers": "one"}, "num_nextn_predict_layers"),
        ({"model_type": "llama4_text", "no_rope_layers": [1, 0, 2]}, "no_rope_layers"),
        ({"model_type": "llama4_text", "no_rope_layers": [1, 0]}, "no_rope_layers"),
        ({"model_type": "llama4_text", "moe_layers": ["all"]}, "moe_layers"),
        ({"model_type": "jamba", "attn_layer_offset": 8}, "attn_layer_offset"),
        ({"model_type": "jamba", "expert_layer_period": 0}, "expert_layer_period"),
        ({"model_type": "jamba", "mamba_dt_rank": "half"}, "mamba_dt_rank"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MAMBA"}, "hybrid_override_pattern"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        ({"model_type": "nemotron_h", "layers_block_type": []}, "layers_block_type"),
        ({"model_type": "nemotron_h", "layers_block_type": ["lstm"]}, "layers_block_type"),
        ({"model_type": "nemotron_h", "n_groups": 3}, "n_groups"),
        ({"model_type": "qwen3_next", "linear_num_value_heads": 24}, "linear_num_value_heads"),
        ({"model_type": "mamba2", "num_heads": 100}, "num_heads"),
        ({"model_type": "bert", "add_cross_attention": True}, "add_cross_attention"),
        ({"model_type": "t5", "feed_forward_proj": "gated-zebra"}, "feed_forward_proj"),
        ({"model_type": "vit", "patch_size": 225}, "patch_size"),
        ({"model_type": "llava", "vision_feature_layer": []}, "vision_feature_layer"),
        ({"model_type": "llava", "text_config": {"model_type": "lama"}}, "text_config/model_type"),
        ({"model_type": "llava", "vision_config": {"model_type": "resnet"}}, "vision_config/model_type"),
        ({"model_type": "llava", "vision_config": {"hidden_size": 770}}, "vision_config/hidden_size"),
        (
            {"model_type": "llama4", "vision_config": {"pixel_shuffle_ratio": 0}},
            "vision_config/pixel_shuffle_ratio",
        ),
        ({"model_type": "qwen2_5_vl", "vision_config": 3}, "vision_config"),
    ],
)
def test_absurd_experts_are_refused_at_their_key(config: Mapping[str, object], key: str) -> None:
    assert refusal(config).pointer == f"/model/huggingface/{key}"


def experts_and_mlps(config: Mapping[str, object]) -> str:
    """Return the feed-forward parts of a model in order: e for experts, m for an MLP."""
    layers = [run.layer for run in workload_from_config(config).runs for _ in range(run.count)]
    return "".join(
        "m" if isinstance(layer, DecoderLayer) or not layer.idle_parameters else "e"
        for layer in layers
        if layer.kind == "decoder"
    )


@pytest.mark.parametrize(
    ("config", "order"),
    [
        ({"model_type": "mixtral", "num_hidden_layers": 3}, "eee"),
        ({"model_type": "deepseek_v3", "num_hidden_layers": 5}, "mmmee"),
        ({"model_type": "glm4_moe", "num_hidden_layers": 3}, "mee"),
        ({"model_type": "qwen2_moe", "num_hidden_layers": 5, "decoder_sparse_step": 2}, "memem"),
        ({"model_type": "qwen3_moe", "num_hidden_layers": 4, "mlp_only_layers": [0, 2]}, "meme"),
        ({"model_type": "llama4_text", "num_hidden_layers": 4, "interleave_moe_layer_step": 2}, "meme"),
        ({"model_type": "llama4_text", "num_hidden_layers": 4, "moe_layers": [3]}, "mmme"),
    ],
)
def test_experts_stand_in_the_layers_that_the_config_says(config: Mapping[str, object], order: str) -> None:
    assert experts_and_mlps(config) == order


@pytest.mark.parametrize(
    ("config", "mixers"),
    [
        ({"model_type": "qwen3_next", "num_hidden_layers": 5}, ["delta"] * 3 + ["attention", "delta"]),
        ({"model_type": "jamba", "num_hidden_layers": 6}, ["scan"] * 4 + ["attention", "scan"]),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E"},
            ["space", "mlp", "attention", "moe"],
        ),
        ({"model_type": "nemotron_h"}, ["space", "moe", "attention", "mlp"]),
        ({"model_type": "nemotron_h", "layers_block_type": ["mamba", "mlp"]}, ["space", "mlp"]),
    ],
)
def test_mixers_stand_in_the_layers_that_the_config_says(
    config: Mapping[str, object], mixers: list[str]
) -> None:
    names = {
        GatedDeltaNet: "delta",
        SelectiveScan: "scan",
        StateSpace: "space",
        SelfAttention: "attention",
        Mlp: "mlp",
        Experts: "moe",
    }
    layers = [run.layer for run in workload_from_config(config).runs for _ in range(run.count)]
    assert [names[type(layer.branches[0])] for layer in layers if isinstance(layer, BlockLayer)] == [
        mixer for mixer, layer in zip(mixers, layers[1:], strict=False) if isinstance(layer, BlockLayer)
    ]


def test_the_active_parameters_of_deepseek_v3_are_those_published() -> None:
    workload = workload_from_config({"model_type": "deepseek_v3"})
    assert (workload.parameters, workload.buffers) == (671_026_404_352, 58 * 256)
    assert workload.active_parameters / 1e9 == pytest.approx(37, abs=0.6)


def test_an_open_number_of_experts_per_token_is_told() -> None:
    assert workload_from_config({"model_type": "deepseek_v2"}).not_understood == ("num_experts_per_tok",)
