import pytest

from planner.workload.chain import workload_from_layers
from planner.workload.huggingface import workload_from_config
from planner.workload.presets import preset_names, preset_workload
from planner.workload.summary import model_summary


@pytest.mark.parametrize("name", preset_names())
def test_the_parts_add_up_to_the_whole(name: str) -> None:
    workload = preset_workload(name)
    summary = model_summary(workload, sequence_length=1024)
    assert summary.parameters == workload.parameters
    assert summary.active_parameters <= summary.parameters
    parts = sum(layer.count * layer.parameters for layer in summary.layers)
    assert parts == workload.parameters + summary.prediction_parameters
    flops = sum(layer.count * (layer.forward_flops_per_sample or 0) for layer in summary.layers)
    assert flops == pytest.approx(workload.forward_flops_per_sample(1024), rel=1e-12)


def test_a_model_without_a_sequence_has_flops_per_sample_alone() -> None:
    summary = model_summary(preset_workload("vit-b-16"))
    flops = sum(layer.count * (layer.forward_flops_per_sample or 0) for layer in summary.layers)
    # 17.6 G multiply-adds per image of 224 x 224 (Dosovitskiy et al., 2020), two FLOP each.
    assert flops == pytest.approx(2 * 17.6e9, rel=0.01)
    assert {layer.forward_flops_per_token for layer in summary.layers} == {None}


def test_a_summary_is_made_at_the_models_own_length_or_at_a_given_one() -> None:
    workload = preset_workload("llama-3-8b")
    own, short = model_summary(workload), model_summary(workload, sequence_length=1024)
    assert own == model_summary(workload, sequence_length=8192)
    per_token = [layer.forward_flops_per_token for layer in short.layers]
    # 2 x (218,112,000 - 2 norms of 4096) weights, and 2 s a d of causal attention.
    assert per_token == [0.0, 2 * (218_112_000 - 8192) + 2 * 1024 * 4096, 0.0, 2 * 4096 * 128256]


def test_experts_predictions_and_buffers_are_told_apart() -> None:
    summary = model_summary(workload_from_config({"model_type": "deepseek_v3"}))
    assert summary.parameters == 671_026_404_352
    assert summary.active_parameters < summary.parameters / 10
    assert summary.buffers == 14_848
    extra = [layer for layer in summary.layers if layer.kind == "mtp"]
    assert summary.prediction_parameters == sum(layer.count * layer.parameters for layer in extra)
    others = [layer for layer in summary.layers if layer.kind != "mtp"]
    assert summary.parameters == sum(layer.count * layer.parameters for layer in others)


def test_names_and_counts_are_those_of_the_model() -> None:
    summary = model_summary(preset_workload("gpt-2-medium"))
    assert (summary.name, summary.family, summary.not_understood) == ("gpt-2-355m", "gpt2", ())
    kinds = [(layer.kind, layer.count) for layer in summary.layers]
    assert kinds == [("embedding", 1), ("decoder", 24), ("norm", 1), ("head", 1)]


def test_without_a_sequence_length_flops_are_null() -> None:
    layer = {"kind": "decoder", "hidden": 8, "ffn": 8, "heads": 1, "kv_heads": 1, "head_dim": 8}
    (only,) = model_summary(workload_from_layers({"layers": [layer]})).layers
    assert (only.forward_flops_per_sample, only.forward_flops_per_token) == (None, None)


@pytest.mark.parametrize("sequence_length", [0, -1, True, 2**40])
def test_a_length_that_is_none_is_refused(sequence_length: int) -> None:
    with pytest.raises(ValueError, match="sequence_length"):
        model_summary(preset_workload("gpt-2"), sequence_length=sequence_length)
