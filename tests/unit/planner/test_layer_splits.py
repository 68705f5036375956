"""Layers that nobody assigned are spread evenly, or by their weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.layer_splits import even_split, weighed_split
from planner.workload.body import body_of
from planner.workload.presets import preset_workload


@given(st.integers(0, 500), st.integers(1, 64))
def test_an_even_split_loses_no_layer_and_differs_by_at_most_one(num_layers: int, num_chunks: int) -> None:
    split = even_split(num_layers, num_chunks)
    assert sum(split) == num_layers
    assert max(split) - min(split) <= 1


@pytest.mark.parametrize(
    ("model", "num_chunks", "layers"),
    [
        # The head of Llama 3 8B weighs as much as 2.4 of its layers, that of GPT-2 as much as 5.4.
        ("llama-3-8b", 1, (32,)),
        ("llama-3-8b", 2, (18, 14)),
        ("llama-3-8b", 4, (9, 9, 8, 6)),
        ("gpt-2-124m", 4, (5, 4, 3, 0)),
        ("gpt-2-124m", 8, (3, 2, 2, 2, 1, 1, 1, 0)),
    ],
)
def test_stages_filled_by_weight_leave_room_for_the_head(
    model: str, num_chunks: int, layers: tuple[int, ...]
) -> None:
    assert weighed_split(body_of(preset_workload(model)), num_chunks) == layers
