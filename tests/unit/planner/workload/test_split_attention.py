"""What attention sends and keeps in each way to split it over context parallel."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from planner.workload.branches import BranchInput
from planner.workload.layers import Cut
from planner.workload.operators import AttentionCore, Collective, CollectivePass, Module, Operator, Phase
from planner.workload.presets import preset_workload
from planner.workload.recomputation import saved_bytes
from planner.workload.self_attention import SelfAttention
from planner.workload.split_attention import SplitAttention, split_attention

ATTENTION = SelfAttention(hidden=8192, heads=64, kv_heads=8, head_dim=128)
"""Key and value are 1024 wide."""
SEQUENCE = 131072
RANKS = 8
TOKENS = SEQUENCE // RANKS


def operators(
    *, head_exchange: int = 1, gathers_keys: bool = False, ranks: int = RANKS
) -> Sequence[Operator]:
    cut = Cut(
        micro_batch_size=1,
        sequence_length=SEQUENCE,
        context_parallel=ranks,
        head_exchange=head_exchange,
        gathers_keys=gathers_keys,
    )
    return ATTENTION.operators(cut, BranchInput(made_by=Module.NORM, is_saved=False))


def collectives(found: Sequence[Operator], phase: Phase) -> list[CollectivePass]:
    return [op for op in found if isinstance(op, CollectivePass) and op.phase is phase]


def core(found: Sequence[Operator]) -> AttentionCore:
    (only,) = (op for op in found if isinstance(op, AttentionCore))
    return only


def test_four_all_to_alls_each_way_move_what_the_published_arithmetic_says() -> None:
    found = operators(head_exchange=RANKS)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        exchanges = collectives(found, phase)
        assert [op.operation for op in exchanges] == [Collective.ALL_TO_ALL] * 4
        # (2 h + 2 h_kv) b s / c in two bytes, of which 7/8 leave the rank: 0.53 GB.
        held = sum(op.payload_bytes for op in exchanges)
        assert held == (2 * 8192 + 2 * 1024) * TOKENS * 2
        assert held * (RANKS - 1) / RANKS == pytest.approx(0.53e9, rel=0.01)


def test_an_exchange_trades_sequence_for_heads() -> None:
    attention = core(operators(head_exchange=RANKS))
    assert (attention.heads, attention.kv_heads) == (8, 1)
    assert (attention.query_length, attention.key_length) == (SEQUENCE, SEQUENCE)


def test_key_heads_that_are_too_few_are_copied_and_sent_so() -> None:
    found = operators(head_exchange=16, ranks=16)
    assert core(found).kv_heads == 1
    query, key, value, output = collectives(found, Phase.FORWARD)
    assert query.payload_bytes == output.payload_bytes == 2 * 8192 * SEQUENCE // 16
    assert key.payload_bytes == value.payload_bytes == 2 * (2 * 1024) * SEQUENCE // 16


def test_a_mixed_scheme_rings_over_the_ranks_that_trade_no_heads() -> None:
    found = operators(head_exchange=2)
    exchanges = [op for op in collectives(found, Phase.FORWARD) if op.operation is Collective.ALL_TO_ALL]
    (ring,) = (op for op in collectives(found, Phase.FORWARD) if op.operation is Collective.SEND_RECEIVE)
    assert {(op.ranks, op.step) for op in exchanges} == {(2, 1)}
    assert (ring.ranks, ring.step, ring.count) == (4, 2, 3)
    # Half of the heads for twice as many tokens.
    assert ring.payload_bytes == 2 * (2 * 1024 // 2) * (2 * TOKENS)


def test_gathering_keys_moves_all_of_them_twice_and_their_gradients_once() -> None:
    found = operators(gathers_keys=True)
    everything = 2 * 2 * 1024 * SEQUENCE
    forward, backward = (collectives(found, phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    assert [(op.operation, op.payload_bytes) for op in forward] == [(Collective.ALL_GATHER, everything)]
    assert [(op.operation, op.payload_bytes) for op in backward] == [
        (Collective.ALL_GATHER, everything),
        (Collective.REDUCE_SCATTER, everything),
    ]
    assert core(found).working_bytes == 2 * everything


def test_every_scheme_computes_as_much() -> None:
    flops = [
        core(found).forward_flops
        for found in (operators(), operators(head_exchange=RANKS), operators(head_exchange=2))
    ]
    assert all(one == pytest.approx(other) for one, other in pairwise(flops))


def test_an_exchange_keeps_the_output_as_the_core_made_it_too() -> None:
    more = saved_bytes(operators(head_exchange=RANKS)) - saved_bytes(operators())
    assert more == 2 * 8192 * TOKENS
    again = {Module.CORE_ATTENTION}
    ring, exchanged = operators(), operators(head_exchange=RANKS)
    assert saved_bytes(exchanged, recompute=again) == saved_bytes(ring, recompute=again)


def test_a_chain_tells_the_attention_that_context_parallel_splits() -> None:
    llama = split_attention(preset_workload("llama-3-8b"), sequence_length=8192)
    assert llama == (SplitAttention(heads=32, kv_heads=8, windowed=False),)
    gemma = split_attention(preset_workload("gemma-2-9b"), sequence_length=8192)
    assert [attention.windowed for attention in gemma] == [True, False]
