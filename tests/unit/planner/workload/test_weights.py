"""What a device holds of a layer, by shape and by what is done with it."""

import pytest

from planner.optimizers import Matrix
from planner.workload.layers import Cut
from planner.workload.presets import preset_workload
from planner.workload.weights import Holding, Holdings, holdings, step_flops_per_sample

CUT = Cut(micro_batch_size=1, sequence_length=128)


@pytest.mark.parametrize(
    "model", ["gpt-2-124m", "llama-3-8b", "mixtral-8x7b", "deepseek-v3", "t5-small", "vit-b-16", "bert-base"]
)
@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_shapes_hold_every_local_parameter_once(model: str, tensor_parallel: int) -> None:
    cut = Cut(micro_batch_size=1, sequence_length=128, tensor_parallel=tensor_parallel)
    for run in preset_workload(model).runs:
        held = holdings(run.layer, cut)
        assert held.parameters == run.layer.local_parameters(cut)
        assert held.experts.parameters == run.layer.local_expert_parameters(cut)
        assert held.dense.trained.parameters == held.dense.parameters


def test_a_decoder_is_four_matrices_and_two_norms() -> None:
    shapes = holdings(preset_workload("llama-2-7b").layer("decoder"), CUT).dense.trained
    assert shapes.matrices == (
        Matrix(rows=3 * 4096, columns=4096),
        Matrix(rows=4096, columns=4096),
        Matrix(rows=2 * 11008, columns=4096),
        Matrix(rows=4096, columns=11008),
    )
    assert (shapes.tables, shapes.vectors) == ((), 2 * 4096)


def test_embedding_and_head_are_tables() -> None:
    llama = preset_workload("llama-2-7b")
    for kind in ("embedding", "head"):
        assert holdings(llama.layer(kind), CUT).dense.trained.tables == (Matrix(rows=32000, columns=4096),)


def test_a_tied_head_holds_nothing() -> None:
    assert holdings(preset_workload("gpt-2-124m").layer("head"), CUT) == Holdings()


def test_experts_are_held_apart() -> None:
    held = holdings(preset_workload("mixtral-8x7b").layer("decoder"), CUT)
    assert {matrix.count for matrix in held.experts.trained.matrices} == {8}
    assert {matrix.count for matrix in held.dense.trained.matrices} == {1}


def test_holdings_add_up() -> None:
    one = Holding(frozen=3, quantized=5)
    both = Holdings(dense=one) + Holdings(dense=one, experts=one)
    assert (both.dense.frozen, both.experts.quantized, both.parameters) == (6, 5, 24)


def test_a_trained_layer_goes_back_twice() -> None:
    layer = preset_workload("llama-2-7b").layer("decoder")
    assert step_flops_per_sample(layer, 512) == 3 * layer.forward_flops_per_sample(512)
