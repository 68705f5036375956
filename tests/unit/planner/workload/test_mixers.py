"""The mixers that keep a state along the sequence, and what they share."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.workload.block import BlockLayer
from planner.workload.branches import BranchInput
from planner.workload.delta_net import GatedDeltaNet
from planner.workload.layers import Cut
from planner.workload.operators import Collective, CollectivePass, MatrixProduct, Module, Operator
from planner.workload.recomputation import WHOLE_LAYER, kept_tensors, saved_bytes
from planner.workload.retention import Retention
from planner.workload.selective_scan import SelectiveScan
from planner.workload.state_space import StateSpace

H = 512
DELTA = GatedDeltaNet(hidden=H, key_heads=8, value_heads=16, key_dim=32, value_dim=64)
SPACE = StateSpace(hidden=H, heads=16, head_dim=64, state=32, groups=8, chunk=64)
SCAN = SelectiveScan(hidden=H, inner=1024, state=16, rank=32)
RETENTION = Retention(hidden=H, heads=8, key_dim=64, value_dim=128, chunk=64)
MIXERS = [DELTA, SPACE, SCAN, RETENTION]
B, S = 2, 512
CUT = Cut(micro_batch_size=B, sequence_length=S)
Mixer = GatedDeltaNet | StateSpace | SelectiveScan | Retention


def operators(mixer: Mixer, cut: Cut = CUT) -> tuple[Operator, ...]:
    return mixer.operators(cut, BranchInput())


def products(mixer: Mixer, cut: Cut) -> list[MatrixProduct]:
    return [op for op in operators(mixer, cut) if isinstance(op, MatrixProduct)]


def test_a_delta_net_counts_maps_convolution_decays_and_its_norm() -> None:
    keys, values = 8 * 32, 16 * 64
    maps = H * (2 * keys + 2 * values + 2 * 16) + values * H
    assert DELTA.parameters == maps + (2 * keys + values) * 4 + 2 * 16 + 64


def test_a_state_space_counts_maps_convolution_heads_and_its_norm() -> None:
    inner, mixed = 16 * 64, 16 * 64 + 2 * 8 * 32
    assert SPACE.parameters == H * (inner + mixed + 16) + inner * H + mixed * 5 + 3 * 16 + inner
    biased = replace(SPACE, bias=True, convolution_bias=False)
    assert biased.parameters - SPACE.parameters == (inner + mixed + 16) + H - mixed


def test_a_selective_scan_counts_maps_convolution_and_states() -> None:
    maps = 1024 * (3 * H + (32 + 2 * 16) + 32)
    assert SCAN.parameters == maps + 1024 * (4 + 1 + 16 + 2)
    assert replace(SCAN, norms=True).parameters - SCAN.parameters == 32 + 2 * 16


def test_retention_counts_eight_maps_where_values_are_twice_as_wide() -> None:
    assert RETENTION.parameters == 8 * H**2


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
@given(t=st.sampled_from([1, 2, 4, 8]), c=st.sampled_from([1, 2]))
def test_products_with_weights_add_up_to_two_flop_per_token_and_weight(mixer: Mixer, t: int, c: int) -> None:
    cut = replace(CUT, tensor_parallel=t, context_parallel=c)
    with_weights = sum(op.forward_flops for op in products(mixer, cut) if op.has_weights)
    whole = sum(op.forward_flops for op in products(mixer, CUT) if op.has_weights)
    assert with_weights * t * c == pytest.approx(whole, rel=1e-12)
    state = 6 * 16 * 32 * 64 if isinstance(mixer, GatedDeltaNet) else 0
    state += 4 * 16 * 32 * 64 if isinstance(mixer, StateSpace) else 0
    state += 4 * 1024 * 16 if isinstance(mixer, SelectiveScan) else 0
    state += 4 * 8 * 64 * 128 if isinstance(mixer, Retention) else 0
    assert mixer.forward_flops(S, memory_length=S) * B == pytest.approx(whole + B * S * state)


@pytest.mark.parametrize("mixer", [DELTA, SPACE, RETENTION], ids=lambda mixer: type(mixer).__name__)
def test_chunks_are_split_over_heads_and_tokens(mixer: Mixer) -> None:
    within = [op for op in products(mixer, CUT) if not op.has_weights]
    split = [
        op
        for op in products(mixer, replace(CUT, tensor_parallel=4, context_parallel=2))
        if not op.has_weights
    ]
    assert [op.count for op in within] == [8 * op.count for op in split]
    assert {op.rows for op in within} == {64}


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_work_is_linear_in_the_sequence(mixer: Mixer) -> None:
    short, long = mixer.forward_flops(S, memory_length=S), mixer.forward_flops(4 * S, memory_length=4 * S)
    assert long == 4 * short


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_ranks_of_a_context_group_exchange_parts_of_the_sequence_for_heads(mixer: Mixer) -> None:
    assert not [op for op in operators(mixer) if isinstance(op, CollectivePass)]
    cut = replace(CUT, context_parallel=2)
    moved = [op for op in operators(mixer, cut) if isinstance(op, CollectivePass)]
    assert [op.operation for op in moved] == [Collective.ALL_TO_ALL] * 4
    assert {op.axis for op in moved} == {"context_parallel"}
    # What goes in is the product's output, what comes out as wide as the values.
    into, out = moved[0].payload_bytes, moved[2].payload_bytes
    first = products(mixer, cut)[0]
    assert into == 2 * first.rows * first.columns
    assert out == 2 * B * S // 2 * 1024


def test_channels_of_a_scan_are_summed_for_what_selects() -> None:
    cut = replace(CUT, tensor_parallel=4)
    sums = [op for op in operators(SCAN, cut) if isinstance(op, CollectivePass) and "select" in op.name]
    assert {op.payload_bytes for op in sums} == {2 * B * S * (32 + 2 * 16)}
    assert len(sums) == 2


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_recomputing_the_mixer_leaves_its_input(mixer: Mixer) -> None:
    kept = {tensor.name for tensor in kept_tensors(operators(mixer), recompute={Module.MIXER})}
    assert kept == {"mixer_in_input"}
    block = BlockLayer(branches=(mixer,))
    assert saved_bytes(block.operators(CUT), recompute=WHOLE_LAYER) == 2 * B * S * H


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_operator_names_are_unique_so_that_a_partner_is_found(mixer: Mixer) -> None:
    cut = replace(CUT, tensor_parallel=4, sequence_parallel=True, context_parallel=2)
    names = [op.name for op in operators(mixer, cut)]
    assert len(names) == len(set(names))
    partners = {op.partner for op in operators(mixer, cut) if isinstance(op, CollectivePass)}
    assert partners <= {None, *names}


@pytest.mark.parametrize(
    ("mixer", "replicated"), [(DELTA, 64), (SPACE, 0), (SCAN, 0)], ids=["delta", "space", "scan"]
)
def test_devices_hold_their_heads_and_replicas_of_norms(mixer: Mixer, replicated: int) -> None:
    cut = replace(CUT, tensor_parallel=8)
    assert 8 * mixer.local_parameters(cut) - mixer.parameters == 7 * replicated


def test_groups_are_replicated_when_devices_outnumber_them() -> None:
    few = replace(SPACE, groups=2)
    cut = replace(CUT, tensor_parallel=8)
    mixed_surplus = 6 * 2 * 32  # of eight devices, six hold a group that another has too
    assert 8 * few.local_parameters(cut) - few.parameters == mixed_surplus * (H + 5)


@pytest.mark.parametrize(
    ("mixer", "degree", "fits"),
    [(DELTA, 8, True), (DELTA, 16, False), (SPACE, 16, True), (SPACE, 32, False), (SCAN, 3, False)],
)
def test_degrees_split_heads_and_channels(mixer: Mixer, degree: int, fits: bool) -> None:  # noqa: FBT001
    assert all(split.allows(degree) for split in mixer.splits) is fits


@pytest.mark.parametrize(
    ("mixer", "name", "value"),
    [
        (DELTA, "value_heads", 12),
        (DELTA, "kernel", 0),
        (SPACE, "groups", 3),
        (SPACE, "chunk", None),
        (SCAN, "rank", -1),
        (SCAN, "norms", 1),
    ],
)
def test_nonsense_is_refused(mixer: Mixer, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name if name != "groups" else "heads"):
        replace(mixer, **{name: value})  # type: ignore[arg-type]  # what is wrong is the point
