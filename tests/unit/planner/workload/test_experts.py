from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.workload.branches import BranchInput
from planner.workload.experts import Experts
from planner.workload.layers import Cut
from planner.workload.operators import (
    Collective,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
)
from planner.workload.recomputation import kept_tensors, recomputed_operators

H, E, K, F = 512, 16, 4, 256
ROUTED = Experts(hidden=H, experts=E, top_k=K, ffn=F)
SHARED = replace(ROUTED, shared_ffn=1024)
B, S = 2, 512
CUT = Cut(micro_batch_size=B, sequence_length=S)
SPLIT = replace(CUT, tensor_parallel=4, sequence_parallel=True)
ONE = 3 * H * F


def named(branch: Experts, name: str, cut: Cut = CUT) -> Operator:
    return next(operator for operator in branch.operators(cut, BranchInput()) if operator.name == name)


def product(branch: Experts, name: str, cut: Cut) -> MatrixProduct:
    found = named(branch, name, cut)
    assert isinstance(found, MatrixProduct)
    return found


def collectives(branch: Experts, cut: Cut, axis: str) -> list[CollectivePass]:
    operators = branch.operators(cut, BranchInput())
    return [op for op in operators if isinstance(op, CollectivePass) and op.axis == axis]


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, E * ONE + E * H),
        ({"gated": False}, E * 2 * H * F + E * H),
        ({"router_bias": True}, E * ONE + E * (H + 1)),
        ({"bias": True}, E * (ONE + 2 * F + H) + E * H),
        ({"shared_ffn": 1024}, E * ONE + E * H + 3 * H * 1024),
        ({"shared_ffn": 1024, "shared_gate": True}, E * ONE + E * H + 3 * H * 1024 + H),
        ({"correction_bias": True}, E * ONE + E * H),
        ({"latent": 128}, E * 3 * 128 * F + E * H + 2 * 128 * H),
    ],
)
def test_experts_count_all_that_is_trained(changes: dict[str, int], parameters: int) -> None:
    assert replace(ROUTED, **changes).parameters == parameters  # type: ignore[arg-type]  # sizes and switches


def test_a_token_leaves_the_experts_idle_that_it_is_not_sent_to() -> None:
    assert ROUTED.idle_parameters == (E - K) * ONE
    assert (ROUTED.buffers, replace(ROUTED, correction_bias=True).buffers) == (0, E)


@pytest.mark.parametrize(("p", "q"), [(1, 1), (4, 1), (16, 1), (1, 2), (4, 2)])
def test_experts_are_split_over_expert_parallel_and_their_widths_over_expert_tensor(p: int, q: int) -> None:
    cut = replace(CUT, expert_parallel=p, expert_tensor_parallel=q)
    assert SHARED.local_expert_parameters(cut) == E * ONE // (p * q)
    assert SHARED.local_parameters(cut) == E * ONE // (p * q) + E * H + 3 * H * 1024


def test_shared_experts_are_split_as_an_mlp_is() -> None:
    cut = replace(CUT, tensor_parallel=4, expert_parallel=4)
    assert SHARED.local_parameters(cut) == E * ONE // 4 + E * H + 3 * H * 1024 // 4


def test_each_expert_has_a_product_of_its_own_over_its_tokens() -> None:
    up = product(ROUTED, "experts_up", CUT)
    assert (up.count, up.rows, up.columns, up.inner) == (E, B * S * K // E, 2 * F, H)
    split = product(ROUTED, "experts_up", replace(CUT, expert_parallel=4, expert_tensor_parallel=2))
    assert (split.count, split.rows, split.columns) == (E // 4, B * S * K * 2 // (E // 4), F)


def test_the_busiest_rank_has_more_rows_and_one_rank_alone_is_never_busier() -> None:
    cut = replace(CUT, expert_parallel=4, expert_imbalance=1.5)
    assert product(ROUTED, "experts_up", cut).rows == B * S * K // (E // 4) * 3 // 2
    alone = replace(CUT, expert_imbalance=1.5)
    assert product(ROUTED, "experts_up", alone) == product(ROUTED, "experts_up", CUT)


def test_each_rank_routes_its_own_shard_or_slice() -> None:
    for cut in (SPLIT, replace(SPLIT, sequence_parallel=False)):
        assert product(ROUTED, "router", cut).rows == B * S // 4
        assert product(ROUTED, "experts_up", cut).rows == B * S // 4 * K // E


@given(
    t=st.sampled_from([1, 2, 4]),
    q=st.sampled_from([1, 2]),
    p=st.sampled_from([1, 2, 8]),
    sequence_parallel=st.booleans(),
)
def test_local_flops_add_up_to_the_useful_flops(t: int, q: int, p: int, *, sequence_parallel: bool) -> None:
    cut = replace(
        CUT,
        tensor_parallel=t,
        sequence_parallel=sequence_parallel,
        expert_parallel=p,
        expert_tensor_parallel=q,
    )
    operators = SHARED.operators(cut, BranchInput())
    local = sum(op.forward_flops for op in operators if isinstance(op, MatrixProduct))
    assert local * t == pytest.approx(B * SHARED.forward_flops(S, memory_length=S), rel=1e-12)


def test_flops_are_those_of_the_experts_at_work() -> None:
    per_token = 2 * (H * E + K * ONE + 3 * H * 1024)
    assert SHARED.forward_flops(S, memory_length=S) == S * per_token


def test_without_expert_parallel_nothing_is_sent() -> None:
    assert collectives(ROUTED, CUT, "expert_parallel") == []
    assert collectives(ROUTED, SPLIT, "tensor_parallel") == []


def test_tokens_go_out_and_come_back_in_either_direction() -> None:
    sent = collectives(ROUTED, replace(SPLIT, expert_parallel=8), "expert_parallel")
    assert [(op.operation, op.phase) for op in sent] == [
        (Collective.ALL_TO_ALL, Phase.FORWARD),
        (Collective.ALL_TO_ALL, Phase.BACKWARD),
    ] * 2
    assert {op.payload_bytes for op in sent} == {2 * B * S // 4 * K * H}


def test_a_latent_makes_what_is_sent_narrower() -> None:
    narrow = replace(ROUTED, latent=128)
    cut = replace(CUT, expert_parallel=8)
    assert {op.payload_bytes for op in collectives(narrow, cut, "expert_parallel")} == {2 * B * S * K * 128}
    assert [op.name for op in narrow.operators(CUT, BranchInput())][2] == "moe_latent_down"


def test_an_expert_tensor_group_joins_its_tokens_and_splits_its_sums() -> None:
    cut = replace(SPLIT, expert_tensor_parallel=4)
    joined = collectives(ROUTED, cut, "expert_tensor_parallel")
    assert [(op.operation, op.phase) for op in joined] == [
        (Collective.ALL_GATHER, Phase.FORWARD),
        (Collective.REDUCE_SCATTER, Phase.BACKWARD),
        (Collective.REDUCE_SCATTER, Phase.FORWARD),
        (Collective.ALL_GATHER, Phase.BACKWARD),
    ]
    assert {op.payload_bytes for op in joined} == {2 * B * S * K * H}


def test_slices_are_gathered_where_every_rank_holds_all_tokens() -> None:
    cut = replace(SPLIT, sequence_parallel=False)
    gathers = collectives(ROUTED, cut, "tensor_parallel")
    assert [(op.operation, op.phase) for op in gathers] == [
        (Collective.ALL_GATHER, Phase.FORWARD),
        (Collective.ALL_GATHER, Phase.BACKWARD),
    ]
    assert {op.payload_bytes for op in gathers} == {2 * B * S * H}


def test_experts_save_their_inputs_and_the_router_its_scores() -> None:
    rows = B * S * K
    saved = {tensor.name: tensor.size_bytes for tensor in kept_tensors(operators(ROUTED), recompute=())}
    assert saved == {
        "router_input": 2 * B * S * H,
        "router_scores": 9 * B * S * E,
        "experts_up_input": 2 * rows * H,
        "experts_activation_input": 2 * rows * 2 * F,
        "experts_down_input": 2 * rows * F,
    }


def operators(branch: Experts, cut: Cut = CUT) -> tuple[Operator, ...]:
    return branch.operators(cut, BranchInput())


def test_recomputing_the_activation_keeps_its_input_and_drops_its_output() -> None:
    modules = {Module.MOE_ACTIVATION}
    kept = {tensor.name for tensor in kept_tensors(operators(ROUTED), recompute=modules)}
    assert "experts_down_input" not in kept
    assert "experts_activation_input" in kept
    again = recomputed_operators(operators(ROUTED), recompute=modules)
    assert [op.name for op in again] == ["experts_activation"]


def test_recomputing_the_mixture_sends_tokens_again_and_keeps_its_input() -> None:
    cut = replace(CUT, expert_parallel=4)
    kept = {tensor.name for tensor in kept_tensors(operators(SHARED, cut), recompute={Module.MOE})}
    assert kept == {"router_input"}
    again = [op.name for op in recomputed_operators(operators(SHARED, cut), recompute={Module.MOE})]
    assert {"moe_dispatch", "moe_combine", "experts_activation", "shared_down"} <= set(again)
    assert "moe_dispatch_gradient" not in again


def test_shared_experts_read_what_the_router_has_saved() -> None:
    saved = [tensor.name for tensor in kept_tensors(operators(SHARED), recompute=())]
    assert "shared_up_input" not in saved
    gated = replace(SHARED, shared_gate=True)
    gate = named(gated, "shared_gate")
    assert isinstance(gate, MemoryPass)
    assert gate.saved_bytes == 2 * B * S * H


def test_operator_names_are_unique() -> None:
    cut = replace(SPLIT, expert_parallel=4, expert_tensor_parallel=2)
    names = [op.name for op in operators(replace(SHARED, latent=64, shared_gate=True), cut)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("axis", "degree", "fits"),
    [
        ("expert_parallel", 8, True),
        ("expert_parallel", 3, False),
        ("expert_tensor_parallel", 4, True),
        ("tensor_parallel", 3, False),
    ],
)
def test_degrees_split_experts_and_widths(axis: str, degree: int, fits: bool) -> None:  # noqa: FBT001
    assert all(split.allows(degree) for split in SHARED.splits if split.axis == axis) is fits


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"top_k": 17}, r"top_k \(17\) must be at most the number of experts \(16\)"),
        ({"experts": 0}, r"experts \(0\)"),
        ({"shared_ffn": -1}, r"shared_ffn \(-1\)"),
        ({"latent": 0}, r"latent \(0\)"),
        ({"gated": "yes"}, r"gated"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(ROUTED, **changes)  # type: ignore[arg-type]  # what is wrong is the point
