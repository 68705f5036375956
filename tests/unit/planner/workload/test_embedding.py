from dataclasses import replace

import pytest

from planner.workload.embedding import EmbeddingLayer, local_vocabulary
from planner.workload.layers import Cut
from planner.workload.operators import Collective, CollectivePass, MatrixProduct, Phase
from planner.workload.passes import Norm
from planner.workload.recomputation import saved_bytes

CUT = Cut(micro_batch_size=2, sequence_length=1024)
TOKENS = 2 * 1024
EMBEDDING = EmbeddingLayer(vocabulary=50257, hidden=768, positions=1024, dropout=0.1)


@pytest.mark.parametrize(
    ("multiple", "t", "rows"),
    [
        (1, 1, 50257),
        (128, 1, 50304),
        (128, 8, 51200 // 8),
        (1, 8, 6283),  # the largest of eight uneven shards
    ],
)
def test_the_vocabulary_is_padded_to_a_multiple_of_tensor_parallel(multiple: int, t: int, rows: int) -> None:
    cut = replace(CUT, tensor_parallel=t, vocabulary_multiple=multiple)
    assert local_vocabulary(50257, cut) == rows


def test_an_embedding_counts_positions_and_no_padding() -> None:
    assert EMBEDDING.parameters == (50257 + 1024) * 768
    padded = replace(CUT, tensor_parallel=8, vocabulary_multiple=128)
    assert EMBEDDING.local_parameters(padded) == (51200 // 8 + 1024) * 768
    assert EMBEDDING.tied_local_parameters(CUT) == 0


def test_an_embedding_multiplies_nothing_and_saves_its_mask() -> None:
    assert EMBEDDING.forward_flops_per_sample(1024) == 0
    assert saved_bytes(EMBEDDING.operators(CUT)) == TOKENS * 768
    assert saved_bytes(replace(EMBEDDING, dropout=0.0).operators(CUT)) == 0


@pytest.mark.parametrize(
    ("sequence_parallel", "moved"),
    [
        (False, [(Collective.ALL_REDUCE, Phase.FORWARD)]),
        (True, [(Collective.REDUCE_SCATTER, Phase.FORWARD), (Collective.ALL_GATHER, Phase.BACKWARD)]),
    ],
)
def test_an_embedding_sums_over_the_shards_of_its_vocabulary(
    sequence_parallel: bool,  # noqa: FBT001
    moved: list[tuple[Collective, Phase]],
) -> None:
    cut = replace(CUT, tensor_parallel=8, sequence_parallel=sequence_parallel)
    collectives = [c for c in EMBEDDING.operators(cut) if isinstance(c, CollectivePass)]
    assert [(c.operation, c.phase) for c in collectives] == moved


def test_types_and_a_norm_come_on_top() -> None:
    bert = EmbeddingLayer(vocabulary=100, hidden=64, positions=10, types=2, norm=Norm.LAYER)
    assert bert.parameters == (100 + 10 + 2 + 2) * 64
    assert [o.name for o in bert.operators(CUT)] == ["embedding", "embedding_norm"]
    assert saved_bytes(bert.operators(CUT)) == 2 * TOKENS * 64


def test_a_narrow_table_is_widened_by_every_device_for_itself() -> None:
    narrow = EmbeddingLayer(vocabulary=100, hidden=64, positions=10, width=16)
    assert narrow.parameters == 100 * 16 + 10 * 64 + 16 * 64
    assert narrow.forward_flops_per_sample(1024) == 2 * 1024 * 16 * 64
    cut = replace(CUT, tensor_parallel=4, sequence_parallel=True)
    product = next(o for o in narrow.operators(cut) if isinstance(o, MatrixProduct))
    assert (product.rows, product.columns, product.inner) == (TOKENS // 4, 64, 16)
    moved = [o.payload_bytes for o in narrow.operators(cut) if isinstance(o, CollectivePass)]
    assert set(moved) == {2 * TOKENS * 16}


def test_a_shared_table_belongs_to_the_embedding_before_it() -> None:
    shared = replace(EMBEDDING, shared=True, positions=0)
    assert shared.parameters == shared.local_parameters(CUT) == 0
    assert shared.tied_local_parameters(CUT) == 50257 * 768
