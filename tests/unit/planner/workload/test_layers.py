import pytest

from planner.workload.layers import Cut
from planner.workload.presets import preset_workload

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
