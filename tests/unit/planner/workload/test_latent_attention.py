from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.workload.branches import BranchInput
from planner.workload.latent_attention import LatentAttention
from planner.workload.layers import Cut
from planner.workload.operators import AttentionCore, CollectivePass, MatrixProduct, Module, Operator
from planner.workload.recomputation import kept_tensors, recomputed_operators

H, A, Q, R = 512, 8, 96, 64
N, P, V = 32, 16, 24
LATENT = LatentAttention(
    hidden=H, heads=A, key_value_rank=R, plain_dim=N, rotary_dim=P, value_dim=V, query_rank=Q
)
B, S = 2, 256
CUT = Cut(micro_batch_size=B, sequence_length=S)
SPLIT = replace(CUT, tensor_parallel=4, sequence_parallel=True)


def operators(branch: LatentAttention = LATENT, cut: Cut = CUT) -> tuple[Operator, ...]:
    return branch.operators(cut, BranchInput())


def shape(name: str, cut: Cut, branch: LatentAttention = LATENT) -> tuple[int, int, int]:
    found = next(op for op in operators(branch, cut) if op.name == name)
    assert isinstance(found, MatrixProduct)
    return found.rows, found.columns, found.inner


def test_deepseek_v3_attention_has_the_published_parameters() -> None:
    branch = LatentAttention(
        hidden=7168,
        heads=128,
        key_value_rank=512,
        plain_dim=128,
        rotary_dim=64,
        value_dim=128,
        query_rank=1536,
    )
    down, up = 7168 * (1536 + 512 + 64), 128 * (192 * 1536 + 256 * 512)
    assert branch.parameters == down + up + 128 * 128 * 7168 + 1536 + 512


def test_straight_queries_have_no_latent_and_biases_stand_at_the_maps_down_and_out() -> None:
    straight = replace(LATENT, query_rank=None)
    assert straight.parameters - LATENT.parameters == A * (N + P) * (H - Q) - H * Q - Q
    assert replace(LATENT, bias=True).parameters - LATENT.parameters == Q + R + P + H
    assert shape("query", SPLIT, straight) == (B * S, A // 4 * (N + P), H)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("query_down", (B * S // 4, Q, H)),
        ("query_up", (B * S, A // 4 * (N + P), Q)),
        ("key_value_down", (B * S // 4, R + P, H)),
        ("key_value_up", (B * S, A // 4 * (N + V), R)),
        ("attention_output", (B * S, H, A // 4 * V)),
    ],
)
def test_maps_down_work_on_the_shard_and_maps_up_on_the_heads(
    name: str, expected: tuple[int, int, int]
) -> None:
    assert shape(name, SPLIT) == expected


def test_heads_have_keys_wider_than_values() -> None:
    core = next(op for op in operators() if isinstance(op, AttentionCore))
    assert (core.heads, core.kv_heads, core.head_dim, core.value_dim) == (A, A, N + P, V)


def test_what_is_gathered_is_the_latents() -> None:
    gathered = {
        op.name: op.payload_bytes
        for op in operators(cut=SPLIT)
        if isinstance(op, CollectivePass) and op.name.endswith("input_gather")
    }
    assert gathered == {
        "query_up_input_gather": 2 * B * S * Q,
        "query_up_saved_input_gather": 2 * B * S * Q,
        "key_value_up_input_gather": 2 * B * S * (R + P),
        "key_value_up_saved_input_gather": 2 * B * S * (R + P),
    }


@given(t=st.sampled_from([1, 2, 4, 8]))
def test_local_flops_add_up_to_the_useful_flops(t: int) -> None:
    cut = replace(CUT, tensor_parallel=t, sequence_parallel=True)
    local = sum(
        op.forward_flops for op in operators(cut=cut) if isinstance(op, MatrixProduct | AttentionCore)
    )
    assert local * t == pytest.approx(B * LATENT.forward_flops(S, memory_length=S), rel=1e-12)


def test_the_input_is_saved_once_and_latents_before_and_after_their_norms() -> None:
    saved = {tensor.name: tensor.size_bytes for tensor in kept_tensors(operators(), recompute=())}
    assert saved == {
        "query_down_input": 2 * B * S * H,
        "query_up_norm_input": 2 * B * S * Q,
        "query_up_input": 2 * B * S * Q,
        "key_value_up_norm_input": 2 * B * S * R,
        "key_value_up_input": 2 * B * S * R,
        "query": 2 * B * S * A * (N + P),
        "key": 2 * B * S * A * (N + P),
        "value": 2 * B * S * A * V,
        "attention_log_sum_exp": 4 * B * S * A,
        "attention_output_input": 2 * B * S * A * V,
    }


def test_recomputing_the_maps_up_frees_queries_keys_and_values() -> None:
    modules = {Module.LATENT_PROJECTION}
    freed = {tensor.name for tensor in kept_tensors(operators(), recompute=())} - {
        tensor.name for tensor in kept_tensors(operators(), recompute=modules)
    }
    assert freed == {"query", "key", "value"}
    again = [op.name for op in recomputed_operators(operators(), recompute=modules)]
    assert again == ["query_up", "key_value_up", "rotary"]


def test_recomputing_attention_runs_the_maps_up_again_too() -> None:
    again = {op.name for op in recomputed_operators(operators(), recompute={Module.ATTENTION})}
    assert {"query_down", "query_up", "key_value_up"} <= again


@pytest.mark.parametrize("name", ["hidden", "heads", "key_value_rank", "rotary_dim", "query_rank"])
def test_nonsense_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        replace(LATENT, **{name: 0})  # type: ignore[arg-type]  # what is wrong is the point


def test_heads_are_split() -> None:
    (split,) = LATENT.splits
    assert (split.allows(8), split.allows(16)) == (True, False)
