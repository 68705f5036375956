from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.workload.branches import BranchInput
from planner.workload.cross_attention import CrossAttention
from planner.workload.layers import Cut
from planner.workload.operators import AttentionCore, CollectivePass, MatrixProduct, Operator
from planner.workload.recomputation import kept_tensors
from planner.workload.streams import TextStream

H, A, D = 256, 8, 32
CROSS = CrossAttention(hidden=H, heads=A, head_dim=D)
B, S, M = 2, 64, 256
CUT = TextStream(is_target=True, length=S).cut(Cut(micro_batch_size=B, sequence_length=M))


def operators(cut: Cut = CUT) -> tuple[Operator, ...]:
    return CROSS.operators(cut, BranchInput())


def test_it_has_four_maps_and_perhaps_biases() -> None:
    assert CROSS.parameters == 4 * H * A * D
    assert replace(CROSS, bias=True).parameters - CROSS.parameters == 3 * A * D + H


def test_queries_are_as_many_as_the_decoders_tokens_and_keys_as_the_encoders() -> None:
    shapes = {op.name: (op.rows, op.columns, op.inner) for op in operators() if isinstance(op, MatrixProduct)}
    assert shapes == {
        "cross_query": (B * S, A * D, H),
        "cross_key_value": (B * M, 2 * A * D, H),
        "cross_attention_output": (B * S, H, A * D),
    }
    core = next(op for op in operators() if isinstance(op, AttentionCore))
    assert (core.query_length, core.key_length, core.causal) == (S, M, False)


def test_without_lengths_of_their_own_both_sides_are_as_long_as_the_job_says() -> None:
    cut = Cut(micro_batch_size=B, sequence_length=M)
    core = next(op for op in operators(cut) if isinstance(op, AttentionCore))
    assert (core.query_length, core.key_length) == (M, M)


@given(t=st.sampled_from([1, 2, 8]), c=st.sampled_from([1, 2]))
def test_local_flops_add_up_to_the_useful_flops(t: int, c: int) -> None:
    cut = replace(CUT, tensor_parallel=t, context_parallel=c)
    local = sum(op.forward_flops for op in operators(cut) if isinstance(op, MatrixProduct | AttentionCore))
    assert local * t * c == pytest.approx(B * CROSS.forward_flops(S, memory_length=M), rel=1e-12)


def test_the_encoders_output_is_gathered_by_every_layer_and_saved_by_none() -> None:
    cut = replace(CUT, tensor_parallel=4, sequence_parallel=True)
    gathers = {
        op.name: op.payload_bytes
        for op in operators(cut)
        if isinstance(op, CollectivePass) and op.name.endswith("_input_gather")
    }
    assert gathers["cross_key_value_input_gather"] == 2 * B * M * H
    assert gathers["cross_query_input_gather"] == 2 * B * S * H
    saved = {tensor.name for tensor in kept_tensors(operators(), recompute=())}
    assert "cross_key_value_input" not in saved
    assert "cross_query_input" in saved


def test_devices_hold_their_heads() -> None:
    biased = replace(CROSS, bias=True)
    cut = replace(CUT, tensor_parallel=8)
    assert 8 * biased.local_parameters(cut) - biased.parameters == 7 * H
    assert [split.allows(8) for split in biased.splits] == [True]


@pytest.mark.parametrize(("name", "value"), [("heads", 0), ("bias", "no"), ("dropout", 1)])
def test_nonsense_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        replace(CROSS, **{name: value})  # type: ignore[arg-type]  # what is wrong is the point
