from dataclasses import replace

import pytest

from planner.workload.branches import BranchInput
from planner.workload.layers import Cut
from planner.workload.mlp import Mlp
from planner.workload.operators import MatrixProduct, MemoryPass
from planner.workload.recomputation import saved_bytes

H, F = 512, 2048
PLAIN = Mlp(hidden=H, ffn=F, gated=False)
B, S = 2, 256
CUT = Cut(micro_batch_size=B, sequence_length=S)


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [({}, 2 * H * F), ({"gated": True}, 3 * H * F), ({"bias": True}, 2 * H * F + F + H)],
)
def test_a_gated_mlp_has_three_matrices(changes: dict[str, bool], parameters: int) -> None:
    assert replace(PLAIN, **changes).parameters == parameters


def test_dropout_inside_keeps_a_mask_of_the_width() -> None:
    kept = [saved_bytes(replace(PLAIN, dropout=p).operators(CUT, BranchInput())) for p in (0.0, 0.1)]
    assert kept[1] - kept[0] == B * S * F


def test_the_width_is_split_and_a_split_mlp_holds_its_share() -> None:
    assert [split.allows(degree) for split in PLAIN.splits for degree in (8, 3)] == [True, False]
    assert PLAIN.local_parameters(replace(CUT, tensor_parallel=8)) == 2 * H * F // 8


def test_what_was_saved_before_is_not_saved_again() -> None:
    first = PLAIN.operators(CUT, BranchInput())
    again = PLAIN.operators(CUT, BranchInput(is_saved=True))
    assert saved_bytes(first) - saved_bytes(again) == 2 * B * S * H


def test_flops_are_two_per_token_and_weight() -> None:
    products = [op for op in PLAIN.operators(CUT, BranchInput()) if isinstance(op, MatrixProduct)]
    assert sum(op.forward_flops for op in products) == B * PLAIN.forward_flops(S, memory_length=S)
    assert PLAIN.forward_flops(S, memory_length=S) == 2 * S * PLAIN.parameters


@pytest.mark.parametrize(("gated", "kind"), [(True, "gated_activation"), (False, "gelu")])
def test_the_activation_resembles_a_measured_kernel(gated: bool, kind: str) -> None:  # noqa: FBT001
    passes = replace(PLAIN, gated=gated).operators(CUT, BranchInput())
    assert [op.kind for op in passes if isinstance(op, MemoryPass)] == [kind]
