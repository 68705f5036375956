import pytest

from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Cut, Split, runs_of
from planner.workload.presets import preset_workload
from planner.workload.transformer import DecoderLayer

GPT_3 = preset_workload("gpt-3-175b")


def test_tokens_are_split_by_context_parallel_and_between_products_by_sequence_parallel() -> None:
    cut = Cut(micro_batch_size=2, sequence_length=4096, tensor_parallel=8, context_parallel=4)
    assert (cut.local_tokens, cut.sharded_tokens) == (2048, 2048)
    split = Cut(micro_batch_size=2, sequence_length=4096, tensor_parallel=8, sequence_parallel=True)
    assert (split.local_tokens, split.sharded_tokens) == (8192, 1024)


def test_a_workload_counts_and_finds_its_layers_by_kind() -> None:
    assert GPT_3.count("decoder") == 96
    assert GPT_3.count("vision") == 0
    assert GPT_3.layer("head").kind == "head"
    with pytest.raises(KeyError):
        GPT_3.layer("vision")


def test_depth_can_be_changed_alone() -> None:
    shallow = GPT_3.with_num_layers(1)
    assert shallow.count("decoder") == 1
    assert GPT_3.parameters - shallow.parameters == 95 * GPT_3.layer("decoder").parameters


def test_a_workloads_flops_are_those_of_its_layers() -> None:
    # Narayanan et al. (2021), equation 3, forward part, with the causal half of attention alone.
    b_s, h, layers, vocabulary = 2048, 12288, 96, 51200
    expected = 24 * b_s * layers * h**2 * (1 + b_s / (12 * h) + vocabulary / (12 * layers * h))
    assert GPT_3.forward_flops_per_sample(2048) == pytest.approx(expected, rel=1e-12)


def windows(num_layers: int) -> list[int | None]:
    """Return the windows of a model whose third layers have none, at another depth."""
    config = {"model_type": "gemma3_text", "num_hidden_layers": 12, "sliding_window_pattern": 3}
    workload = workload_from_config({**config, "sliding_window": 8}).with_num_layers(num_layers)
    layers = [run.layer for run in workload.runs for _ in range(run.count)]
    return [layer.window for layer in layers if isinstance(layer, DecoderLayer)]


@pytest.mark.parametrize("num_layers", [1, 2, 3, 5, 12, 13, 20])
def test_another_depth_goes_on_with_the_pattern_of_the_layers(num_layers: int) -> None:
    assert windows(num_layers) == [8 if (place + 1) % 3 else None for place in range(num_layers)]


def test_the_ends_stay_where_they_are_at_another_depth() -> None:
    kinds = [run.layer.kind for run in GPT_3.with_num_layers(7).runs]
    assert kinds == ["embedding", "decoder", "norm", "head"]
    assert GPT_3.with_num_layers(7, kind="vision") == GPT_3


def test_equal_layers_in_a_row_are_one_run() -> None:
    one, other = GPT_3.layer("decoder"), GPT_3.layer("norm")
    assert [(run.layer.kind, run.count) for run in runs_of([one, one, other, one])] == [
        ("decoder", 2),
        ("norm", 1),
        ("decoder", 1),
    ]


@pytest.mark.parametrize(
    ("pieces", "degree", "replicate", "fits"),
    [(8, 4, False, True), (8, 16, False, False), (8, 16, True, True), (8, 12, True, False)],
)
def test_a_degree_divides_the_pieces_or_repeats_them(
    pieces: int,
    degree: int,
    replicate: bool,  # noqa: FBT001
    fits: bool,  # noqa: FBT001
) -> None:
    split = Split(name="key/value heads", pieces=pieces, axis="tensor_parallel", replicate=replicate)
    assert split.allows(degree) is fits


def test_every_parameter_of_a_dense_model_is_active() -> None:
    assert GPT_3.active_parameters == GPT_3.parameters
    assert (GPT_3.prediction_parameters, GPT_3.buffers) == (0, 0)


def test_layers_of_a_dense_model_have_no_experts() -> None:
    cut = Cut(micro_batch_size=1, sequence_length=2048, tensor_parallel=8)
    assert sum(run.layer.local_expert_parameters(cut) for run in GPT_3.runs) == 0
    assert {split.pieces for run in GPT_3.runs for split in run.layer.splits} == {96, 4 * 12288}
