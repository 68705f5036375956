from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InvalidRequest, UnknownName
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer
from planner.workload.huggingface import FAMILIES, workload_from_config
from planner.workload.passes import Norm
from planner.workload.transformer import DecoderLayer
from tests.unit.planner.workload.families.configs import model_or_refusal, refusal

LLAMA_3_8B: Mapping[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}


def decoder(config: Mapping[str, object]) -> DecoderLayer:
    layer = workload_from_config(config).layer("decoder")
    assert isinstance(layer, DecoderLayer)
    return layer


def test_a_published_config_is_understood_whole() -> None:
    workload = workload_from_config(LLAMA_3_8B)
    assert workload.parameters == 8_030_261_248
    assert (workload.name, workload.family) == ("llama", "llama")
    assert workload.default_sequence_length == 8192
    assert workload.not_understood == ()
    assert [run.layer.kind for run in workload.runs] == ["embedding", "decoder", "norm", "head"]


# Counted by transformers 5.24 on the meta device from `{"model_type": family}` alone.
@pytest.mark.parametrize(
    ("family", "parameters", "sequence_length"),
    [
        ("gpt2", 124_439_808, 1024),
        ("llama", 6_738_415_616, 2048),
        ("mistral", 7_241_732_096, 131_072),
        ("qwen2", 12_049_846_272, 32_768),
    ],
)
def test_missing_keys_mean_the_class_defaults(family: str, parameters: int, sequence_length: int) -> None:
    workload = workload_from_config({"model_type": family})
    assert workload.parameters == parameters
    assert workload.default_sequence_length == sequence_length


@pytest.mark.parametrize(
    ("config", "kv_heads"),
    [
        ({"model_type": "llama", "num_attention_heads": 16}, 16),
        ({"model_type": "llama", "num_key_value_heads": None}, 32),
        ({"model_type": "mistral"}, 8),
        ({"model_type": "mistral", "num_key_value_heads": None}, 32),
        ({"model_type": "qwen2", "num_attention_heads": 64}, 32),
        ({"model_type": "qwen2", "num_attention_heads": 64, "num_key_value_heads": None}, 64),
    ],
)
def test_key_heads_default_by_family(config: Mapping[str, object], kv_heads: int) -> None:
    assert decoder(config).kv_heads == kv_heads


@pytest.mark.parametrize(
    ("changes", "head_dim"), [({}, 128), ({"head_dim": None}, 128), ({"head_dim": 64}, 64)]
)
def test_head_width_is_given_or_follows_from_hidden_size(changes: dict[str, object], head_dim: int) -> None:
    assert decoder({**LLAMA_3_8B, **changes}).head_dim == head_dim


@pytest.mark.parametrize(
    ("config", "biases"),
    [
        ({"model_type": "gpt2"}, (True, True, True)),
        ({"model_type": "llama"}, (False, False, False)),
        ({"model_type": "llama", "attention_bias": True}, (True, True, False)),
        ({"model_type": "llama", "mlp_bias": True}, (False, False, True)),
        ({"model_type": "mistral"}, (False, False, False)),
        ({"model_type": "qwen2"}, (True, False, False)),
    ],
)
def test_biases_stand_where_the_class_has_them(
    config: Mapping[str, object], biases: tuple[bool, bool, bool]
) -> None:
    layer = decoder(config)
    assert (layer.qkv_bias, layer.output_bias, layer.mlp_bias) == biases


def test_gpt2_has_layer_norm_gelu_dropout_and_learned_positions() -> None:
    workload = workload_from_config({"model_type": "gpt2", "attn_pdrop": 0.2, "n_positions": 2048})
    layer, embedding = workload.layer("decoder"), workload.layer("embedding")
    assert isinstance(layer, DecoderLayer)
    assert isinstance(embedding, EmbeddingLayer)
    assert (layer.norm, layer.gated, layer.rotary) == (Norm.LAYER, False, False)
    assert (layer.attention_dropout, layer.hidden_dropout, embedding.dropout) == (0.2, 0.1, 0.1)
    assert embedding.positions == 2048


@pytest.mark.parametrize(("inner", "ffn"), [({}, 3072), ({"n_inner": None}, 3072), ({"n_inner": 1000}, 1000)])
def test_gpt2_mlp_is_four_times_as_wide_unless_said(inner: dict[str, object], ffn: int) -> None:
    assert decoder({"model_type": "gpt2", **inner}).ffn == ffn


def test_gpt2_takes_the_canonical_spellings_too() -> None:
    canonical = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    workload = workload_from_config({"model_type": "gpt2", **canonical})
    assert workload.parameters == 354_823_168
    assert workload.not_understood == ()


def test_spellings_that_differ_are_refused() -> None:
    error = refusal({"model_type": "gpt2", "n_embd": 768, "hidden_size": 1024})
    assert error.pointer == "/model/huggingface/n_embd"
    assert "768" in error.message
    assert "1024" in error.message


@pytest.mark.parametrize(("family", "is_tied"), [("gpt2", True), ("llama", False)])
def test_tying_defaults_by_family_and_can_be_said(family: str, is_tied: bool) -> None:  # noqa: FBT001
    heads = [
        workload_from_config({"model_type": family, **changes}).layer("head")
        for changes in ({}, {"tie_word_embeddings": not is_tied})
    ]
    assert [isinstance(head, HeadLayer) and head.tied for head in heads] == [is_tied, not is_tied]


def test_a_missing_model_type_lists_the_families() -> None:
    error = refusal({"hidden_size": 4096})
    assert error.pointer == "/model/huggingface/model_type"
    assert error.nearest_legal == tuple(sorted(FAMILIES))


@pytest.mark.parametrize(
    ("model_type", "nearest"), [("lama", "llama"), ("qwen", "qwen2"), ("gpt-neox", "gpt_neox")]
)
def test_an_unknown_model_type_names_the_nearest(model_type: object, nearest: str) -> None:
    error = refusal({"model_type": model_type})
    assert isinstance(error, UnknownName)
    assert error.pointer == "/model/huggingface/model_type"
    assert error.nearest_legal[0] == nearest


def test_a_model_type_that_is_no_name_lists_the_families() -> None:
    assert refusal({"model_type": 7}).nearest_legal == tuple(sorted(FAMILIES))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", -4096),
        ("hidden_size", 10**9),
        ("hidden_size", 4096.0),
        ("hidden_size", float("nan")),
        ("hidden_size", "4096"),
        ("hidden_size", True),
        ("hidden_size", None),
        ("hidden_size", [4096]),
        pytest.param("hidden_size", 10**5000, id="five thousand digits"),
        ("hidden_size", 4095),
        ("num_hidden_layers", 10**6),
        ("num_key_value_heads", 7),
        ("num_key_value_heads", 64),
        ("num_attention_heads", 0),
        ("head_dim", -1),
        ("intermediate_size", {}),
        ("vocab_size", 10**8),
        ("max_position_embeddings", 0),
        ("attention_dropout", 1.5),
        ("attention_dropout", float("nan")),
        ("attention_dropout", "none"),
        ("tie_word_embeddings", 1),
        ("attention_bias", "no"),
        ("mlp_bias", None),
        ("hidden_act", "silo"),
        ("hidden_act", 3),
    ],
)
def test_an_absurd_value_is_refused_at_its_key(key: str, value: object) -> None:
    error = refusal({**LLAMA_3_8B, key: value})
    assert error.pointer == f"/model/huggingface/{key}"
    assert key in error.message


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"n_embd": 770}, "n_embd"),
        ({"hidden_size": 770}, "hidden_size"),
        ({"n_embd": 9_999_996, "n_head": 12}, "n_inner"),
        ({"n_embd": 9_999_996, "n_head": 12, "n_inner": None}, "n_inner"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"n_layer": -1}, "n_layer"),
        ({"resid_pdrop": 1}, "resid_pdrop"),
        ({"activation_function": "gelu_newer"}, "activation_function"),
    ],
)
def test_a_gpt2_config_is_refused_at_the_spelling_it_used(changes: dict[str, object], key: str) -> None:
    assert refusal({"model_type": "gpt2", **changes}).pointer == f"/model/huggingface/{key}"


def test_an_unfit_number_of_key_heads_names_the_nearest_fit() -> None:
    assert refusal({**LLAMA_3_8B, "num_key_value_heads": 12}).nearest_legal == (8,)


def test_the_pointer_begins_where_the_caller_says() -> None:
    with pytest.raises(InvalidRequest) as caught:
        workload_from_config({"model_type": "llama", "vocab_size": -1}, pointer="")
    assert caught.value.pointer == "/vocab_size"


@pytest.mark.parametrize(
    ("changes", "not_understood"),
    [
        ({"num_hidden_layer": 40, "zebra": None}, ("num_hidden_layer", "zebra")),
        ({"quantization_config": {"bits": 4}}, ("quantization_config",)),
        ({"architectures": ["LlamaForZebras"]}, ("architectures",)),
        ({"architectures": "LlamaForCausalLM"}, ()),
        ({"unk_token_id": 0, "dtype": "bfloat16", "_name_or_path": "x"}, ()),
        ({"model_type": "mistral", "sliding_window": 4096}, ("attention_bias",)),
        ({"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 28}, ("attention_bias",)),
        ({"model_type": "qwen2", "layer_types": ["full_attention"] * 32}, ("attention_bias",)),
        ({"model_type": "mpt", "attn_config": {"alibi": True, "zebra": 1}}, ("attn_config.zebra",)),
        (
            {"model_type": "llava", "text_config": {"zebra": 1}, "vision_config": {"lion": 2}},
            ("text_config.zebra", "vision_config.lion"),
        ),
        ({"model_type": "bert", "tie_word_embeddings": False}, ("tie_word_embeddings",)),
    ],
)
def test_what_is_not_understood_is_listed(
    changes: dict[str, object], not_understood: tuple[str, ...]
) -> None:
    config = {**LLAMA_3_8B, "architectures": None, **changes}
    if changes.get("model_type") in {"bert", "llava", "mpt"}:
        config = changes
    assert workload_from_config(config).not_understood == not_understood


def test_a_section_is_read_under_its_own_pointer() -> None:
    error = refusal({"model_type": "mpt", "attn_config": {"attn_pdrop": 2}})
    assert error.pointer == "/model/huggingface/attn_config/attn_pdrop"
    assert refusal({"model_type": "mpt", "attn_config": 3}).pointer == "/model/huggingface/attn_config"


def test_a_config_names_its_model_where_it_can() -> None:
    assert workload_from_config({"model_type": "gpt2", "_name_or_path": "distilgpt2"}).name == "distilgpt2"
    assert workload_from_config({"model_type": "gpt2", "_name_or_path": ""}).name == "gpt2"
    assert workload_from_config({"model_type": "gpt2"}, name="mine").name == "mine"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=4), children, max_size=3)
    ),
    max_leaves=4,
)


@given(key=st.sampled_from(sorted(LLAMA_3_8B)), value=JSON_VALUES)
def test_any_value_gives_a_model_or_a_refusal_at_some_key(key: str, value: object) -> None:
    outcome = model_or_refusal({**LLAMA_3_8B, key: value})
    if isinstance(outcome, InvalidRequest):
        assert outcome.pointer.startswith("/model/huggingface/")
    else:
        assert outcome.parameters > 0
