import pytest

from planner.validation.models import workload_of
from planner.validation.rows import Reader, UnusableRow
from planner.workload.presets import preset_workload
from planner.workload.transformer import DecoderLayer
from tests.unit.planner.validation.published import row

LLAMA_3_8B = {
    "model": "Llama 3 8b", "layers": "32", "hidden": "4096", "ffn_hidden": "14336", "heads": "32",
    "kv_heads": "8", "vocab": "128256", "seq_len": "8192",
}  # fmt: skip
GPT_3 = {
    "model": "GPT-175B", "layers": "96", "hidden": "12288", "ffn_hidden": "49152", "heads": "96",
    "kv_heads": "96", "vocab": "51200", "seq_len": "2048",
}  # fmt: skip
SMALL_LLAMA_3_2 = {
    **LLAMA_3_8B, "model": "in-house", "layers": "16", "hidden": "2048", "ffn_hidden": "8192",
}  # fmt: skip


@pytest.mark.parametrize(("cells", "preset"), [(LLAMA_3_8B, "llama-3-8b"), (GPT_3, "gpt-3-175b")])
def test_columns_and_a_name_make_the_model_of_the_preset(cells: dict[str, str], preset: str) -> None:
    workload = workload_of(Reader(row=row(**cells)))
    assert [run.layer for run in workload.runs] == [run.layer for run in preset_workload(preset).runs]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"layers": ""}, "no layers"),
        ({"hidden": ""}, "no hidden"),
        ({"ffn_hidden": ""}, "no ffn_hidden"),
        ({"heads": ""}, "no heads"),
        ({"vocab": ""}, "no vocab"),
        ({"seq_len": ""}, "no seq_len"),
        ({"heads": "33"}, "hidden is no multiple of heads"),
        ({"kv_heads": "5"}, "heads is no multiple of kv_heads"),
        ({"experts": "8", "top_k": "2"}, "no config of the model is known"),
        ({"model": "Mamba-2.8b"}, "no column describes its state-space layers"),
    ],
)
def test_a_model_that_lacks_a_fact_is_refused_with_that_fact(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(UnusableRow, match=reason):
        workload_of(Reader(row=row(**cells)))


def test_what_the_row_leaves_unsaid_is_noted() -> None:
    reader = Reader(row=row(model="in-house", kv_heads=""))
    decoder = workload_of(reader).layer("decoder")
    assert isinstance(decoder, DecoderLayer)
    assert decoder.kv_heads == decoder.heads
    assert reader.assumed == {"model", "kv_heads"}


def test_the_width_of_a_plain_mlp_has_a_default() -> None:
    reader = Reader(row=row(**{**GPT_3, "ffn_hidden": ""}))
    decoder = workload_of(reader).layer("decoder")
    assert isinstance(decoder, DecoderLayer)
    assert decoder.ffn == 4 * decoder.hidden
    assert reader.assumed == {"ffn_hidden"}


@pytest.mark.parametrize(
    ("billions", "tied"), [("1.236", True), ("1.498", False), ("3.0", False), ("", False)]
)
def test_a_parameter_count_tells_whether_the_head_is_tied(billions: str, *, tied: bool) -> None:
    workload = workload_of(Reader(row=row(**SMALL_LLAMA_3_2, params_b=billions)))
    head, embedding = workload.layer("head"), workload.layer("embedding")
    assert head.parameters == (0 if tied else embedding.parameters)
