"""Frozen layers: what they save, run and hold."""

from dataclasses import replace

import pytest

from planner.job import BaseFormat
from planner.workload.frozen import DEQUANTIZE, FrozenLayer, base_bytes
from planner.workload.keeping import EAGER
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass, MatrixProduct, MemoryPass, Phase
from planner.workload.presets import preset_workload
from planner.workload.recomputation import WHOLE_LAYER, recomputed_operators, saved_bytes

LLAMA = preset_workload("llama-2-7b")
DECODER = LLAMA.layer("decoder")
TOKENS, HIDDEN, FFN, HEADS = 1024, 4096, 11008, 32
CUT = Cut(micro_batch_size=1, sequence_length=TOKENS)
SPLIT = replace(CUT, tensor_parallel=2, sequence_parallel=True)


def test_a_frozen_product_saves_no_input_but_the_output_that_its_core_needs() -> None:
    """Norm inputs, Q, K, V, the core's output and log-sum-exp, and the activation's input stay."""
    kept = saved_bytes(FrozenLayer(layer=DECODER).operators(CUT))
    assert kept == TOKENS * (2 * (2 * HIDDEN + 4 * HIDDEN + 2 * FFN) + 4 * HEADS)


def test_with_full_recomputation_its_input_stays_alone() -> None:
    kept = saved_bytes(FrozenLayer(layer=DECODER).operators(CUT), recompute=WHOLE_LAYER)
    assert kept == 2 * TOKENS * HIDDEN


def test_a_rerun_of_a_post_norm_block_starts_from_its_input() -> None:
    encoder = preset_workload("bert-base").layer("encoder")
    operators = FrozenLayer(layer=encoder).operators(CUT)
    assert saved_bytes(operators, recompute=WHOLE_LAYER) == 2 * TOKENS * 768
    assert "qkv_input" not in {
        tensor.name
        for op in operators
        if not isinstance(op, CollectivePass)
        for tensor in op.saved
        if not tensor.only_to_rerun
    }


def test_before_anything_trained_nothing_is_saved_and_nothing_runs_again() -> None:
    operators = FrozenLayer(layer=DECODER, has_backward=False).operators(SPLIT)
    assert saved_bytes(operators) == 0
    assert recomputed_operators(operators, recompute=WHOLE_LAYER) == ()
    assert all(op.forward_only for op in operators)
    assert {op.phase for op in operators if isinstance(op, CollectivePass)} == {Phase.FORWARD}


def test_no_input_is_gathered_again_for_a_weight_gradient_that_nobody_computes() -> None:
    def gathers(layer: object) -> int:
        operators = layer.operators(SPLIT)  # type: ignore[attr-defined]
        return sum("saved_input_gather" in op.name for op in operators)

    assert (gathers(DECODER), gathers(FrozenLayer(layer=DECODER))) == (2, 0)


def test_a_frozen_norm_keeps_nothing_for_the_gradient_of_its_scale() -> None:
    """PyTorch's RMS norm keeps its FP32 input, and the normalised one for the scale."""
    eager = replace(CUT, keeping=EAGER)
    trained = sum(op.saved_bytes for op in DECODER.operators(eager) if isinstance(op, MemoryPass))
    frozen = FrozenLayer(layer=DECODER).operators(eager)
    kept = sum(op.saved_bytes for op in frozen if isinstance(op, MemoryPass))
    assert trained - kept == 2 * 4 * TOKENS * HIDDEN


def test_a_frozen_layer_does_two_thirds_of_the_work_of_its_products() -> None:
    """Forward and input gradients; before anything trained forward alone."""
    forward = DECODER.forward_flops_per_sample(TOKENS)
    weights = 2 * TOKENS * (4 * HIDDEN**2 + 3 * HIDDEN * FFN)
    assert FrozenLayer(layer=DECODER).step_flops_per_sample(TOKENS) == 3 * forward - weights
    first = FrozenLayer(layer=DECODER, has_backward=False)
    assert first.step_flops_per_sample(TOKENS) == forward


def test_a_frozen_layer_trains_nothing_of_what_it_holds() -> None:
    held = FrozenLayer(layer=DECODER).holdings(CUT)
    assert held.dense.frozen == held.parameters == DECODER.parameters


@pytest.mark.parametrize(
    ("base_format", "bits"),
    [(BaseFormat.NF4, 4.127), (BaseFormat.INT8, 8), (BaseFormat.BF16, 16), (None, 16)],
)
def test_bits_per_weight_at_rest(base_format: BaseFormat | None, bits: float) -> None:
    """Dettmers et al., "QLoRA" (2023): double quantization leaves 0.127 bits of scales per parameter."""
    assert 8 * base_bytes(base_format, CUT) == pytest.approx(bits, abs=1e-3)


def test_quantized_weights_are_copied_before_each_use() -> None:
    operators = FrozenLayer(layer=DECODER, base_format=BaseFormat.NF4).operators(CUT)
    passes = [op for op in operators if isinstance(op, MemoryPass) and op.kind == DEQUANTIZE]
    products = [op for op in operators if isinstance(op, MatrixProduct) and op.has_weights]
    assert [op.name for op in passes] == [f"{op.name}_dequantize" for op in products]
    assert all(op.dequantized for op in products)
    moved = sum(op.columns * op.inner for op in products) * (base_bytes(BaseFormat.NF4, CUT) + 2)
    assert sum(op.forward_bytes for op in passes) == sum(op.backward_bytes for op in passes) == moved


def test_weights_that_rest_as_they_compute_are_read_in_place() -> None:
    for base_format in (BaseFormat.BF16, None):
        operators = FrozenLayer(layer=DECODER, base_format=base_format).operators(CUT)
        assert not any(isinstance(op, MatrixProduct) and op.dequantized for op in operators)


def test_norms_and_tables_are_not_quantized() -> None:
    held = FrozenLayer(layer=DECODER, base_format=BaseFormat.NF4).holdings(CUT).dense
    assert (held.frozen, held.quantized) == (2 * HIDDEN, DECODER.parameters - 2 * HIDDEN)
    head = FrozenLayer(layer=LLAMA.layer("head"), base_format=BaseFormat.NF4).holdings(CUT).dense
    assert head.quantized == 0


def test_experts_are_quantized_apart() -> None:
    layer = preset_workload("mixtral-8x7b").layer("decoder")
    held = FrozenLayer(layer=layer, base_format=BaseFormat.NF4).holdings(CUT)
    assert held.experts.quantized == layer.local_expert_parameters(CUT)
    assert held.experts.frozen == 0
