from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.workload.layers import Cut
from planner.workload.operators import Collective, CollectivePass, MatrixProduct, MemoryPass
from planner.workload.recomputation import saved_bytes
from planner.workload.tables import InteractionLayer, TablesLayer

TABLES = TablesLayer(table_rows=(1000, 3, 50), width=128)
INTERACTION = InteractionLayer(vectors=4, width=128)
B = 6
CUT = Cut(micro_batch_size=B, sequence_length=1)


def lookups(tables: TablesLayer, cut: Cut) -> MemoryPass:
    found = tables.operators(cut)[0]
    assert isinstance(found, MemoryPass)
    return found


@given(p=st.sampled_from([1, 2, 4, 128]))
def test_tables_are_split_over_expert_parallel_by_columns(p: int) -> None:
    cut = replace(CUT, expert_parallel=p)
    assert TABLES.local_parameters(cut) == TABLES.local_expert_parameters(cut) == 1053 * 128 // p
    assert lookups(TABLES, cut).forward_bytes == lookups(TABLES, CUT).forward_bytes


@given(p=st.sampled_from([1, 2, 4]))
def test_a_pass_updates_the_rows_that_it_looked_up(p: int) -> None:
    held = TABLES.holdings(replace(CUT, expert_parallel=p))
    assert held.parameters == held.experts.looked_up.parameters == 1053 * 128 // p
    assert (held.experts.trained.parameters, held.dense.parameters) == (0, 0)
    assert held.experts.touched == held.experts.reduced == (B * p + 3 + min(50, B * p)) * 128 // p
    assert TABLES.step_flops_per_sample(1) == 0


def test_vectors_are_exchanged_there_and_back() -> None:
    assert not [op for op in TABLES.operators(CUT) if isinstance(op, CollectivePass)]
    exchanges = TABLES.operators(replace(CUT, expert_parallel=4))[1:]
    assert {op.operation for op in exchanges if isinstance(op, CollectivePass)} == {Collective.ALL_TO_ALL}
    assert {op.payload_bytes for op in exchanges if isinstance(op, CollectivePass)} == {2 * B * 3 * 128}


def test_more_lookups_read_more_rows_and_leave_fewer_idle() -> None:
    several = replace(TABLES, lookups=5)
    assert lookups(several, CUT).forward_bytes == 3 * lookups(TABLES, CUT).forward_bytes
    assert TABLES.idle_parameters == (1053 - 3) * 128
    assert several.idle_parameters == (995 + 45) * 128


def test_vectors_beside_go_on_with_those_of_the_tables() -> None:
    assert (TABLES.inputs, TABLES.outputs) == (128, 4 * 128)
    assert TABLES.output_bytes(CUT) == 2 * B * 4 * 128
    assert (replace(TABLES, beside=0).inputs, replace(TABLES, beside=0).outputs) == (0, 3 * 128)


def test_neither_splits_over_tensor_parallel() -> None:
    for layer in (TABLES, INTERACTION):
        assert not any(split.allows(2) for split in layer.splits if split.axis == "tensor_parallel")


@pytest.mark.parametrize(
    ("layer", "outputs"),
    [(INTERACTION, 128 + 6), (replace(INTERACTION, with_itself=True), 128 + 10)],
)
def test_every_pair_of_vectors_meets_once(layer: InteractionLayer, outputs: int) -> None:
    product = layer.operators(CUT)[0]
    assert isinstance(product, MatrixProduct)
    assert (product.rows, product.columns, product.inner, product.count) == (4, 4, 128, B)
    assert product.forward_flops == B * layer.forward_flops_per_sample(1)
    assert layer.outputs == outputs
    assert layer.output_bytes(CUT) == 2 * B * outputs


def test_an_interaction_saves_its_vectors() -> None:
    assert saved_bytes(INTERACTION.operators(CUT)) == 2 * B * 4 * 128
    assert saved_bytes(TABLES.operators(CUT)) == 0


@pytest.mark.parametrize(
    ("layer", "changes"),
    [
        (TABLES, {"table_rows": ()}),
        (TABLES, {"table_rows": (5, 0)}),
        (TABLES, {"table_rows": (10**10,)}),
        (TABLES, {"width": 0}),
        (TABLES, {"lookups": 0}),
        (TABLES, {"beside": -1}),
        (INTERACTION, {"vectors": 1}),
        (INTERACTION, {"width": 0}),
        (INTERACTION, {"with_itself": "no"}),
    ],
)
def test_nonsense_is_refused(layer: Any, changes: dict[str, object]) -> None:  # noqa: ANN401 - either layer
    with pytest.raises(ValueError, match=next(iter(changes))):
        replace(layer, **changes)
