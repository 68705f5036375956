from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.workload.branches import BranchInput
from planner.workload.layers import Cut
from planner.workload.operators import AttentionCore, MatrixProduct, MemoryPass, Operator
from planner.workload.self_attention import SelfAttention

H, A, K, D = 512, 8, 2, 64
PLAIN = SelfAttention(hidden=H, heads=A, kv_heads=K, head_dim=D)
B, S = 2, 256
CUT = Cut(micro_batch_size=B, sequence_length=S)
INPUT = BranchInput()
WEIGHTS = H * (A + 2 * K) * D + A * D * H


def named(branch: SelfAttention, name: str, cut: Cut = CUT) -> Operator:
    return next(operator for operator in branch.operators(cut, INPUT) if operator.name == name)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, 0),
        ({"qkv_bias": True}, (A + 2 * K) * D),
        ({"output_bias": True}, H),
        ({"query_key_norm": True}, 2 * D),
        ({"gated": True}, H * A * D),
        ({"sinks": True}, A),
        ({"relative_buckets": 32}, 32 * A),
        ({"window": 64}, 0),
    ],
)
def test_every_option_has_its_parameters(changes: dict[str, bool | int], more: int) -> None:
    branch = replace(PLAIN, **changes)  # type: ignore[arg-type]  # booleans and sizes
    assert branch.parameters == WEIGHTS + more


@given(t=st.sampled_from([1, 2, 4, 8]), gated=st.booleans(), window=st.none() | st.integers(1, 300))
def test_local_flops_add_up_to_the_useful_flops(t: int, *, gated: bool, window: int | None) -> None:
    branch = replace(PLAIN, kv_heads=A, gated=gated, window=window)
    local = sum(
        operator.forward_flops
        for operator in branch.operators(replace(CUT, tensor_parallel=t), INPUT)
        if isinstance(operator, MatrixProduct | AttentionCore)
    )
    assert local * t == pytest.approx(B * branch.forward_flops(S, memory_length=S), rel=1e-12)


def test_a_window_leaves_a_band_of_the_pairs() -> None:
    core = named(replace(PLAIN, window=64), "attention_core")
    assert isinstance(core, AttentionCore)
    pairs = S * 64 - 64**2 / 2
    assert core.forward_flops == pytest.approx(4 * B * A * D * pairs)


def test_a_window_as_long_as_the_sequence_changes_nothing() -> None:
    assert replace(PLAIN, window=S).forward_flops(S, memory_length=S) == PLAIN.forward_flops(
        S, memory_length=S
    )


@given(length=st.integers(1, 4000), window=st.integers(1, 4000), causal=st.booleans())
def test_a_longer_window_never_costs_less(length: int, window: int, *, causal: bool) -> None:
    branch = replace(PLAIN, causal=causal)
    shorter, longer = (
        replace(branch, window=size).forward_flops(length, memory_length=length)
        for size in (window, window + 1)
    )
    assert shorter <= longer <= branch.forward_flops(length, memory_length=length)


@pytest.mark.parametrize(("length", "chunk", "pairs"), [(256, 64, 4 * 64**2), (200, 64, 3 * 64**2 + 8**2)])
def test_chunks_see_themselves_alone(length: int, chunk: int, pairs: int) -> None:
    branch = replace(PLAIN, causal=False, chunk=chunk)
    core = branch.forward_flops(length, memory_length=length) - 2 * length * WEIGHTS
    assert core == pytest.approx(4 * A * D * pairs)


def test_a_gate_is_as_wide_as_the_queries_and_is_saved_with_what_it_multiplies() -> None:
    branch = replace(PLAIN, gated=True)
    qkv, gate = named(branch, "qkv"), named(branch, "attention_gate")
    assert isinstance(qkv, MatrixProduct)
    assert qkv.columns == (2 * A + 2 * K) * D
    assert isinstance(gate, MemoryPass)
    assert gate.saved_bytes == 2 * 2 * B * S * A * D


def test_norms_of_queries_and_keys_save_both() -> None:
    norm = named(replace(PLAIN, query_key_norm=True), "query_key_norm")
    assert isinstance(norm, MemoryPass)
    assert norm.saved_bytes == 2 * B * S * (A + K) * D


@pytest.mark.parametrize(("degree", "fits"), [(1, True), (2, True), (4, True), (8, True), (3, False)])
def test_heads_split_evenly_and_key_heads_may_be_replicated(degree: int, fits: bool) -> None:  # noqa: FBT001
    assert all(split.allows(degree) for split in PLAIN.splits) is fits


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"window": 0}, r"window \(0\)"),
        ({"chunk": "8192"}, r"chunk \('8192'\)"),
        ({"gated": 1}, r"gated \(1\) must be true or false"),
        ({"relative_buckets": -1}, r"relative_buckets \(-1\)"),
        ({"kv_heads": 3}, r"heads \(8\) must be a multiple of kv_heads \(3\)"),
    ],
)
def test_nonsense_is_refused_with_its_numbers(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(PLAIN, **changes)  # type: ignore[arg-type]  # what is wrong is the point
