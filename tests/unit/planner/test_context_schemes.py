"""What each way to split attention over context parallel has to divide, whatever the framework."""

import pytest

from planner.context_schemes import scheme_violations, sequence_pieces
from planner.job import AttentionKind
from planner.strategy import ContextParallelScheme, Mesh
from tests.unit.planner.settings import setting

RING, ALL_TO_ALL, ALL_GATHER, MIXED = ContextParallelScheme


def a_mesh(scheme: ContextParallelScheme, *, context: int, tensor: int = 1, degree: int = 1) -> Mesh:
    return Mesh(
        tensor_parallel=tensor,
        context_parallel=context,
        context_parallel_scheme=scheme,
        all_to_all_degree=degree,
    )


@pytest.mark.parametrize(
    ("mesh", "pointer", "nearest"),
    [
        # 32 heads and 8 key heads: of 3 ranks none gets a whole share.
        (a_mesh(ALL_TO_ALL, context=3), "/plan/context_parallel", 4),
        (a_mesh(ALL_TO_ALL, context=16, tensor=4), "/plan/context_parallel", 8),
        (a_mesh(MIXED, context=6, degree=3), "/plan/all_to_all_degree", 2),
        (a_mesh(MIXED, context=8, degree=8), "/plan/all_to_all_degree", 4),
        (a_mesh(MIXED, context=8), "/plan/all_to_all_degree", 2),
        (a_mesh(MIXED, context=2), "/plan/context_parallel_scheme", ALL_TO_ALL),
        (a_mesh(RING, context=4, degree=2), "/plan/all_to_all_degree", 1),
    ],
)
def test_what_a_scheme_cannot_split_is_told_the_nearest_that_it_can(
    mesh: Mesh, pointer: str, nearest: object
) -> None:
    violation = next(scheme_violations(setting(num_devices=64), mesh))
    assert violation.pointer == pointer
    assert nearest in violation.nearest_legal


@pytest.mark.parametrize(
    "mesh",
    [
        a_mesh(RING, context=3),
        a_mesh(ALL_GATHER, context=5),
        a_mesh(ALL_TO_ALL, context=32),
        a_mesh(ALL_TO_ALL, context=8, tensor=4),
        a_mesh(MIXED, context=24, degree=8),
    ],
)
def test_key_heads_may_be_copied_and_rings_need_none(mesh: Mesh) -> None:
    assert list(scheme_violations(setting(num_devices=64), mesh)) == []


def test_heads_of_images_that_stay_whole_bind_nothing() -> None:
    seeing = setting(model="qwen2.5-vl-7b", num_devices=64)
    heads = {attention.heads for attention in seeing.split_attention}
    assert heads == {28}
    assert list(scheme_violations(seeing, a_mesh(ALL_TO_ALL, context=28))) == []


def test_attention_of_plain_products_is_split_by_heads_alone() -> None:
    unfused = setting(num_devices=64, attention=AttentionKind.UNFUSED)
    assert list(scheme_violations(unfused, a_mesh(ALL_TO_ALL, context=4))) == []
    assert next(scheme_violations(unfused, a_mesh(ALL_GATHER, context=4))).pointer == "/plan/context_parallel"


def test_ranks_take_two_pieces_but_where_each_sees_the_whole_sequence() -> None:
    assert sequence_pieces(a_mesh(RING, context=4)) == 8
    assert sequence_pieces(a_mesh(MIXED, context=4, degree=2)) == 8
    assert sequence_pieces(a_mesh(ALL_TO_ALL, context=4)) == 4
    assert sequence_pieces(Mesh()) == 1
