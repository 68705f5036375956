import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InvalidRequest, UnknownName
from planner.workload.chain import layers_document, workload_from_layers
from planner.workload.ends import NormLayer
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Cut, LayerRun, PlainLayer, Workload
from planner.workload.operators import Operator
from planner.workload.presets import preset_names, preset_workload

DECODER: Mapping[str, object] = {
    "kind": "decoder",
    "count": 2,
    "hidden": 64,
    "ffn": 256,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
}
EMBEDDING: Mapping[str, object] = {"kind": "embedding", "vocabulary": 100, "hidden": 64}
HEAD: Mapping[str, object] = {"kind": "head", "vocabulary": 100, "hidden": 64}


def refusal(*layers: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        workload_from_layers({"layers": list(layers)})
    return caught.value


def model_or_refusal(document: Mapping[str, object]) -> Workload | InvalidRequest:
    try:
        return workload_from_layers(document)
    except InvalidRequest as error:
        return error


@pytest.mark.parametrize("name", preset_names())
def test_a_chain_document_is_read_back_as_it_was(name: str) -> None:
    workload = preset_workload(name)
    document = json.loads(json.dumps(layers_document(workload)))
    assert workload_from_layers(document).runs == workload.runs


FAMILIES: list[Mapping[str, object]] = [
    {"model_type": "bert", "architectures": ["BertForPreTraining"]},
    {"model_type": "gemma3"},
    {"model_type": "llava"},
    {"model_type": "qwen2_5_vl"},
    {"model_type": "t5"},
    {"model_type": "vit"},
    {"model_type": "resnet", "layer_type": "basic"},
    {"model_type": "efficientnet"},
    {"model_type": "bloom"},
    {"model_type": "deepseek_v3"},
    {"model_type": "falcon"},
    {"model_type": "gemma2"},
    {"model_type": "gpt_neox"},
    {"model_type": "gpt_oss"},
    {"model_type": "jamba"},
    {"model_type": "llama", "architectures": ["LlamaForTokenClassification"]},
    {"model_type": "mpt"},
    {"model_type": "nemotron_h", "num_nextn_predict_layers": 1},
    {"model_type": "qwen3_next"},
    {"model_type": "opt", "word_embed_proj_dim": 512, "do_layer_norm_before": False},
    {"model_type": "qwen2_moe"},
    {"model_type": "qwen3"},
]


@pytest.mark.parametrize("config", FAMILIES, ids=str)
def test_the_chain_document_of_a_family_is_read_back_as_it_was(config: Mapping[str, object]) -> None:
    workload = workload_from_config(config)
    document = json.loads(json.dumps(layers_document(workload)))
    assert workload_from_layers(document).runs == workload.runs


BLOCK: Mapping[str, object] = {
    "kind": "block",
    "role": "encoder",
    "branches": [
        {"type": "attention", "hidden": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "causal": False},
        {"type": "mlp", "hidden": 64, "ffn": 256},
    ],
    "arrangement": "post",
    "stream": {"type": "images", "image_size": 64, "patch_size": 16},
}


def test_a_block_is_made_of_branches() -> None:
    workload = workload_from_layers({"layers": [BLOCK]})
    document = json.loads(json.dumps(layers_document(workload)))
    assert workload_from_layers(document) == workload
    assert workload.count("encoder") == 1
    assert workload.parameters == 4 * 64 * 64 + 3 * 64 * 256 + 2 * 64


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"branches": []}, "/branches"),
        ({"branches": {"type": "mlp"}}, "/branches"),
        ({"branches": [7]}, "/branches/0"),
        ({"branches": [{"hidden": 64}]}, "/branches/0/type"),
        ({"branches": [{"type": "mpl", "hidden": 64, "ffn": 8}]}, "/branches/0/type"),
        ({"branches": [{"type": "mlp", "hidden": 64}]}, "/branches/0/ffn"),
        ({"branches": [{"type": "mlp", "hidden": 64, "ffn": -1}]}, "/branches/0/ffn"),
        ({"branches": [{"type": "mlp", "hidden": 64, "ffn": 8, "heads": 4}]}, "/branches/0/heads"),
        ({"arrangement": "between"}, "/arrangement"),
        ({"stream": {"type": "film"}}, "/stream/type"),
        ({"stream": {"type": "images", "image_size": 64}}, "/stream/patch_size"),
        ({"stream": 3}, "/stream"),
    ],
)
def test_a_wrong_part_of_a_block_is_refused_where_it_stands(
    changes: Mapping[str, object], pointer: str
) -> None:
    assert refusal({**BLOCK, **changes}).pointer == f"/model/layers/0{pointer}"


def test_what_has_a_default_may_be_left_out() -> None:
    workload = workload_from_layers({"layers": [EMBEDDING, DECODER, {"kind": "norm", "hidden": 64}, HEAD]})
    attention, mlp, norms = (64 + 64 + 64) * 64, 3 * 256 * 64, 2 * 64
    assert workload.parameters == 100 * 64 + 2 * (attention + mlp + norms) + 64 + 100 * 64
    assert (workload.name, workload.family) == ("custom", "custom")


@pytest.mark.parametrize(("positions", "sequence_length"), [(0, None), (512, 512)])
def test_learned_positions_are_the_chains_own_length(positions: int, sequence_length: int | None) -> None:
    workload = workload_from_layers({"layers": [{**EMBEDDING, "positions": positions}, DECODER]})
    assert workload.default_sequence_length == sequence_length


@pytest.mark.parametrize(
    "document", [{}, {"layers": []}, {"layers": "decoder"}, {"layers": None}, {"layers": {}}]
)
def test_a_document_needs_a_list_of_layers(document: Mapping[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        workload_from_layers(document)
    assert caught.value.pointer == "/model/layers"


@pytest.mark.parametrize(
    ("layer", "pointer"),
    [
        (7, ""),
        ({}, "/kind"),
        ({"kind": "decoderr"}, "/kind"),
        ({"kind": ["decoder"]}, "/kind"),
        ({**DECODER, "width": 3}, "/width"),
        ({**DECODER, "a/b~c": 3}, "/a~1b~0c"),
        ({"kind": "decoder", "hidden": 64}, "/ffn"),
        ({**DECODER, "count": 0}, "/count"),
        ({**DECODER, "count": 10**6}, "/count"),
        ({**DECODER, "count": True}, "/count"),
        ({**DECODER, "hidden": -64}, "/hidden"),
        ({**DECODER, "hidden": 64.0}, "/hidden"),
        ({**DECODER, "heads": "4"}, "/heads"),
        ({**DECODER, "kv_heads": 3}, "/heads"),
        ({**DECODER, "gated": "yes"}, "/gated"),
        ({**DECODER, "norm": "batch"}, "/norm"),
        ({**DECODER, "norm": None}, "/norm"),
        ({**DECODER, "arrangement": "none"}, "/arrangement"),
        ({"kind": "projector", "widths": "64"}, "/widths"),
        ({"kind": "mtp", "vocabulary": 10, "block": []}, "/block"),
        ({"kind": "mtp", "vocabulary": 10, "block": {"branches": []}}, "/block/branches"),
        ({"kind": "projector", "widths": [64, "32"]}, "/widths"),
        ({**DECODER, "hidden_dropout": float("nan")}, "/hidden_dropout"),
        ({**DECODER, "attention_dropout": None}, "/attention_dropout"),
    ],
)
def test_a_wrong_layer_is_refused_at_its_field(layer: object, pointer: str) -> None:
    assert refusal(layer).pointer == f"/model/layers/0{pointer}"


@pytest.mark.parametrize(
    ("layer", "nearest"),
    [
        ({"kind": "decode"}, "decoder"),
        ({**DECODER, "hiden": 64}, "hidden"),
        ({**DECODER, "tied": True}, "gated"),
    ],
)
def test_an_unknown_kind_or_field_gets_the_nearest(layer: Mapping[str, object], nearest: str) -> None:
    error = refusal(layer)
    assert isinstance(error, UnknownName)
    assert nearest in error.nearest_legal


@pytest.mark.parametrize(
    ("layers", "pointer"),
    [
        ([EMBEDDING, HEAD], ""),
        ([DECODER, EMBEDDING], "/1/kind"),
        ([HEAD, DECODER], "/0/kind"),
        ([EMBEDDING, DECODER, {**EMBEDDING, "count": 1}, DECODER], "/2/kind"),
        ([{**EMBEDDING, "count": 2}, DECODER], "/0/count"),
        ([EMBEDDING, DECODER, {**HEAD, "hidden": 32}], "/2/hidden"),
        ([DECODER, {**HEAD, "tied": True}], "/1/tied"),
        ([EMBEDDING, DECODER, {**HEAD, "tied": True, "vocabulary": 99}], "/2/vocabulary"),
        ([DECODER, {"kind": "projector", "widths": [65, 64]}], "/1/widths"),
        ([DECODER, {"kind": "projector", "widths": [64, 32]}, {**HEAD, "hidden": 64}], "/2/hidden"),
    ],
)
def test_layers_that_do_not_fit_one_another_are_refused(
    layers: list[Mapping[str, object]], pointer: str
) -> None:
    assert refusal(*layers).pointer == f"/model/layers{pointer}"


VECTORS: Mapping[str, object] = {"type": "vectors"}
LSTM: Mapping[str, object] = {"kind": "lstm", "inputs": 64, "hidden": 32, "bidirectional": True}
TABLES: Mapping[str, object] = {"kind": "tables", "table_rows": [10, 20, 30], "width": 16}
INTERACTION: Mapping[str, object] = {"kind": "interaction", "vectors": 4, "width": 16}
CONVOLUTION: Mapping[str, object] = {"type": "convolution", "inputs": 3, "outputs": 64, "kernel": 3}
IMAGES: Mapping[str, object] = {"type": "images", "image_size": 64, "patch_size": 1}
STEM: Mapping[str, object] = {
    "kind": "convolutional",
    "role": "embedding",
    "parts": [{**CONVOLUTION, "stride": 2}, {"type": "pool", "channels": 64, "kernel": 3, "stride": 2}],
    "stream": IMAGES,
}
BOTTLENECK: Mapping[str, object] = {
    "kind": "convolutional",
    "parts": [{**CONVOLUTION, "inputs": 64}, {"type": "squeeze_excite", "channels": 64, "width": 4}],
    "residual": True,
    "activation": "relu",
    "stream": {**IMAGES, "patch_size": 4},
}
HALVING: Mapping[str, object] = {**CONVOLUTION, "inputs": 64, "stride": 2}
POOL: Mapping[str, object] = {"kind": "pool", "channels": 64, "stream": {**IMAGES, "patch_size": 4}}
CLASSES: Mapping[str, object] = {"kind": "classifier", "hidden": 64, "classes": 10**8, "sharded": True}
OTHER_CHAINS: Mapping[str, list[Mapping[str, object]]] = {
    "lstm": [EMBEDDING, LSTM, {**LSTM, "count": 3}, HEAD],
    "recommendation": [
        {"kind": "projector", "role": "bottom_mlp", "widths": [13, 32, 16], "stream": VECTORS},
        TABLES,
        INTERACTION,
        {"kind": "projector", "role": "top_mlp", "widths": [22, 64], "stream": VECTORS},
        {"kind": "classifier", "hidden": 64, "classes": 1, "stream": VECTORS},
    ],
    "convolutional": [STEM, {**BOTTLENECK, "count": 4}, POOL, {**CLASSES, "stream": IMAGES}],
    "retention": [
        EMBEDDING,
        {
            "kind": "block",
            "count": 3,
            "branches": [
                {"type": "retention", "hidden": 64, "heads": 4, "key_dim": 16, "value_dim": 32},
                {"type": "mlp", "hidden": 64, "ffn": 128},
            ],
        },
        HEAD,
    ],
}


@pytest.mark.parametrize("layers", OTHER_CHAINS.values(), ids=OTHER_CHAINS)
def test_a_chain_that_no_config_describes_is_read_back_as_it_was(layers: list[Mapping[str, object]]) -> None:
    workload = workload_from_layers({"layers": layers})
    document = json.loads(json.dumps(layers_document(workload)))
    assert workload_from_layers(document) == workload


@pytest.mark.parametrize(
    ("layers", "pointer"),
    [
        ([{**STEM, "parts": []}], "/0/parts"),
        ([{**STEM, "parts": [{"type": "convolve"}]}], "/0/parts/0/type"),
        ([{**STEM, "parts": [{**CONVOLUTION, "stride": 0}]}], "/0/parts/0/stride"),
        ([{**STEM, "parts": [CONVOLUTION, CONVOLUTION]}], "/0/parts"),
        ([{**STEM, "shortcut": {"type": "pool"}}], "/0/shortcut/type"),
        ([{**STEM, "activation": "tanh"}], "/0/activation"),
        ([{**STEM, "stream": None}], "/0/stream"),
        ([{**STEM, "stream": VECTORS}], "/0/stream"),
        ([{**POOL, "stream": {"type": "text"}}, LSTM], "/0/stream"),
        ([STEM, {**BOTTLENECK, "stream": IMAGES}], "/1/stream/patch_size"),
        ([{**BOTTLENECK, "residual": False, "parts": [HALVING], "count": 2}], "/0/count"),
        ([{**STEM, "parts": [CONVOLUTION], "role": "encoder", "count": 2}], "/0/count"),
        ([STEM, BOTTLENECK, {**POOL, "channels": 32}], "/2/channels"),
        ([EMBEDDING, {**LSTM, "inputs": 32}], "/1/inputs"),
        ([EMBEDDING, LSTM, {**LSTM, "inputs": 32}], "/2/inputs"),
        ([EMBEDDING, {**LSTM, "hidden": 16, "count": 2}], "/1/count"),
        ([TABLES], ""),
        ([{**TABLES, "table_rows": 3}, INTERACTION], "/0/table_rows"),
        ([{**TABLES, "table_rows": [3, "4"]}, INTERACTION], "/0/table_rows"),
        ([TABLES, {**INTERACTION, "vectors": 3}], "/1/vectors"),
        ([LSTM, TABLES], "/1/width"),
        ([LSTM, {**CLASSES, "classes": 10**10}], "/1/classes"),
    ],
)  # fmt: skip
def test_other_layers_that_cannot_be_are_refused_where_they_stand(
    layers: list[Mapping[str, object]], pointer: str
) -> None:
    assert refusal(*layers).pointer == f"/model/layers{pointer}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignLayer(PlainLayer):
    kind: ClassVar[str] = "foreign"
    parameters: int = 0

    def local_parameters(self, cut: Cut) -> int:
        return self.parameters * cut.tensor_parallel

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        return NormLayer(hidden=8).operators(cut)

    def output_bytes(self, cut: Cut) -> float:
        return cut.activation_bytes(8)

    def forward_flops_per_sample(self, sequence_length: int) -> float:
        return 0.0 * sequence_length


def test_a_layer_without_a_place_in_the_document_is_refused() -> None:
    workload = Workload(name="x", family="x", runs=(LayerRun(layer=ForeignLayer(), count=1),))
    with pytest.raises(TypeError, match="ForeignLayer"):
        layers_document(workload)


@given(
    key=st.sampled_from(sorted(DECODER)),
    value=st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.none()),
)
def test_any_value_gives_a_model_or_a_refusal(key: str, value: object) -> None:
    outcome = model_or_refusal({"layers": [{**DECODER, key: value}]})
    if isinstance(outcome, InvalidRequest):
        assert outcome.pointer.startswith("/model/layers")
    else:
        assert outcome.parameters > 0
