import pytest

from planner.validation.architectures import architecture_of
from planner.validation.models import workload_of
from planner.validation.rows import Reader
from planner.workload.presets import preset_workload
from tests.unit.planner.validation.published import row

DEEPSEEK = {
    "model": "DeepSeekV3",
    "layers": "61",
    "hidden": "7168",
    "ffn_hidden": "2048",
    "heads": "128",
    "kv_heads": "128",
    "vocab": "129280",
    "experts": "256",
    "top_k": "8",
}


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("DeepSeekV3", "deepseek-v3"),
        ("deepseekv2-truncated-L4", "deepseek-v2"),
        ("DeepSeek-V2-Lite", "deepseek-v2-lite"),
        ("Qwen3_235B_a22B", "qwen3-235b-a22b"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("Grok1 314b", "mixtral-8x7b"),
        ("LLAMA4 maverick 400b", "llama-4-maverick"),
        ("Nemotron_3_Nano", "nemotron-h-8b"),
    ],
)
def test_a_name_says_whose_config_describes_the_model(model: str, preset: str) -> None:
    architecture = architecture_of(model)
    assert architecture is not None
    assert architecture.preset == preset


@pytest.mark.parametrize("model", ["Llama-3-8B", "GPT3-175B", ""])
def test_models_that_columns_describe_need_no_config(model: str) -> None:
    assert architecture_of(model) is None


def test_a_described_model_has_the_layers_of_its_preset_but_for_further_prediction() -> None:
    described = workload_of(Reader(row=row(**DEEPSEEK)))
    preset = preset_workload("deepseek-v3")
    assert [run for run in preset.runs if run.layer.kind == "decoder"] == [
        run for run in described.runs if run.layer.kind == "decoder"
    ]
    assert described.count("mtp") == 0


def test_what_a_row_gives_stands_in_place_of_the_presets_sizes() -> None:
    half = workload_of(Reader(row=row(**{**DEEPSEEK, "layers": "31", "experts": "128"})))
    assert half.count("decoder") == 31
    assert half.parameters < workload_of(Reader(row=row(**DEEPSEEK))).parameters / 2


def test_what_a_row_leaves_unsaid_is_the_presets_and_counts_as_assumed() -> None:
    reader = Reader(row=row(**{**DEEPSEEK, "vocab": "", "top_k": ""}))
    assert workload_of(reader).parameters == workload_of(Reader(row=row(**DEEPSEEK))).parameters
    assert {"vocab", "top_k"} <= reader.assumed


def test_notes_say_how_many_layers_of_a_shortened_model_have_no_experts() -> None:
    short = {**DEEPSEEK, "layers": "4"}
    three, one = (
        workload_of(Reader(row=row(**short, notes=notes)))
        for notes in ("cut to 4 layers", "dense_layers=1 of the 4")
    )
    layers = {name: [run.count for run in workload.runs] for name, workload in (("3", three), ("1", one))}
    assert layers == {"3": [1, 3, 1, 1, 1], "1": [1, 1, 3, 1, 1]}


def test_hybrids_alternate_as_their_config_says() -> None:
    cells = {"model": "Nemotron-H 56b", "layers": "118", "hidden": "8192", "ffn_hidden": "32768"}
    hybrid = workload_of(Reader(row=row(**cells, heads="64", kv_heads="8", vocab="131072")))
    assert hybrid.count("decoder") == 118
    assert 55e9 < hybrid.parameters < 57.5e9


def test_a_name_is_enough_where_columns_say_nothing() -> None:
    unsaid = dict.fromkeys(("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab"), "")
    nano = workload_of(Reader(row=row(**unsaid, model="Nemotron_3_Nano")))
    assert nano.parameters == pytest.approx(31.6e9, rel=0.002)
    assert nano.count("decoder") == 52
    lightning = workload_of(Reader(row=row(**unsaid, model="Nemotron_3_5_Lightning")))
    assert lightning.count("mtp") == 1
