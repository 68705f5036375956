"""What kernels keep beside the least, in bytes per token of one block."""

from dataclasses import replace

import pytest

from planner.job import AttentionKind
from planner.workload.block import BlockLayer
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer
from planner.workload.experts import Experts
from planner.workload.keeping import EAGER, FUSED, Keeping
from planner.workload.layers import Cut, Layer
from planner.workload.operators import CollectivePass, MemoryPass, Module
from planner.workload.passes import Norm
from planner.workload.recomputation import WHOLE_LAYER, saved_bytes
from planner.workload.transformer import DecoderLayer

HIDDEN, FFN, HEADS, KV_HEADS, TOKENS = 64, 96, 8, 4, 16
BLOCK = DecoderLayer(hidden=HIDDEN, ffn=FFN, heads=HEADS, kv_heads=KV_HEADS, head_dim=HIDDEN // HEADS)


def bytes_per_token(layer: Layer, keeping: Keeping, *, element_bytes: int = 2) -> float:
    return saved_bytes(layer.operators(cut(keeping, element_bytes=element_bytes))) / TOKENS


def cut(keeping: Keeping, *, element_bytes: int = 2) -> Cut:
    return Cut(micro_batch_size=1, sequence_length=TOKENS, element_bytes=element_bytes, keeping=keeping)


def more(keeping: Keeping, *, element_bytes: int = 2) -> float:
    """Return what a block keeps beyond fused kernels."""
    fused = bytes_per_token(BLOCK, FUSED, element_bytes=element_bytes)
    return bytes_per_token(BLOCK, keeping, element_bytes=element_bytes) - fused


@pytest.mark.parametrize(("element_bytes", "norm_bytes"), [(2, 4 - 2 + 4), (4, 4)])
def test_a_norm_in_fp32_keeps_its_upcast_input_and_what_it_normalised(
    element_bytes: int, norm_bytes: int
) -> None:
    keeping = Keeping(upcast_norms=True)
    assert more(keeping, element_bytes=element_bytes) == 2 * norm_bytes * HIDDEN


def test_layer_norms_are_one_kernel_everywhere() -> None:
    plain = DecoderLayer(
        hidden=HIDDEN, ffn=FFN, heads=HEADS, kv_heads=HEADS, head_dim=8, norm=Norm.LAYER, gated=False
    )
    assert bytes_per_token(plain, EAGER) == bytes_per_token(plain, FUSED)


def test_an_unfused_gate_keeps_its_activation() -> None:
    assert more(Keeping(activation_outputs=True)) == 2 * FFN


def test_eight_bit_products_keep_one_byte_of_what_they_alone_keep() -> None:
    attention_input, attention_output, mlp_input, down_input = -HIDDEN, HIDDEN, -HIDDEN, -FFN
    less = attention_input + attention_output + mlp_input + down_input
    assert more(Keeping(product_input_bytes=1)) == less


def test_full_recomputation_keeps_the_input_alone_however_passes_run() -> None:
    kept = saved_bytes(BLOCK.operators(cut(EAGER)), recompute=WHOLE_LAYER)
    assert kept == 2 * HIDDEN * TOKENS


def test_recomputed_norms_keep_no_copy_in_fp32() -> None:
    recompute = frozenset({Module.NORM})
    eager, fused = (
        saved_bytes(BLOCK.operators(cut(keeping)), recompute=recompute)
        for keeping in (Keeping(upcast_norms=True), FUSED)
    )
    assert eager == fused


def test_a_loss_in_steps_holds_two_fp32_gradients_per_logit() -> None:
    operators = HeadLayer(vocabulary=128, hidden=HIDDEN).operators(cut(EAGER))
    working = [op.working_bytes for op in operators if isinstance(op, MemoryPass)]
    assert working == [2 * 4 * TOKENS * 128]


def test_an_unfused_softmax_in_fp32_is_kept_beside_what_the_next_product_reads() -> None:
    eager, fused = (
        saved_bytes(BLOCK.operators(replace(cut(keeping), attention=AttentionKind.UNFUSED)))
        for keeping in (Keeping(upcast_softmax=True), FUSED)
    )
    assert eager - fused == 4 * HEADS * TOKENS**2


def test_whole_vocabularies_stay_whole_beside_split_layers() -> None:
    split = Cut(micro_batch_size=1, sequence_length=TOKENS, tensor_parallel=4, sequence_parallel=True)
    whole = replace(split, splits_vocabulary=False)
    for layer in (HeadLayer(vocabulary=128, hidden=HIDDEN), EmbeddingLayer(vocabulary=128, hidden=HIDDEN)):
        assert layer.local_parameters(split) == layer.parameters // 4
        assert layer.local_parameters(whole) == layer.parameters
        assert saved_bytes(layer.operators(whole)) == saved_bytes(layer.operators(cut(FUSED)))
        assert not any(isinstance(op, CollectivePass) for op in layer.operators(whole))
    assert BLOCK.local_parameters(whole) == BLOCK.local_parameters(split)


def test_experts_keep_their_inputs_as_their_products_read_them() -> None:
    experts = Experts(hidden=HIDDEN, ffn=FFN, experts=8, top_k=2)
    wide, narrow = (
        saved_bytes(BlockLayer(branches=(experts,)).operators(cut(keeping)))
        for keeping in (FUSED, Keeping(product_input_bytes=1))
    )
    assert wide - narrow == 2 * TOKENS * (HIDDEN + FFN)


@pytest.mark.parametrize(("keeping", "kept"), [(FUSED, 4), (Keeping(kept_logit_bytes=2), 2)])
def test_a_loss_keeps_its_softmax_or_the_logits_that_it_read(keeping: Keeping, kept: int) -> None:
    head = HeadLayer(vocabulary=32, hidden=HIDDEN)
    assert bytes_per_token(head, keeping) == 2 * HIDDEN + kept * 32
