"""The least memory of a mesh is below what any of its plans needs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.floors import Floors
from planner.cost.least_memory import AlikeLayers, LeastMemory, chain_may_fit
from planner.cost.model import CostModel
from planner.job import Constraints
from planner.search.capacity import fits_at_all
from planner.search.meshes import BatchedMesh, by_mesh, schedules
from planner.search.space import search_space
from planner.strategy import Batch, Layout
from tests.unit.planner.settings import request_of, setting


def cost_model(model: str, *, memory_fraction: float, num_layers: int | None) -> CostModel:
    judged = setting(
        model=model, num_devices=4, global_batch_size=8, sequence_length=1024, num_layers=num_layers
    )
    return CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request_of(judged).profiles,
        memory_fraction=memory_fraction,
    )


def memory_of(costs: CostModel) -> LeastMemory:
    return LeastMemory(model=costs, floors=Floors(model=costs, sizes=()))


def layouts(batched: BatchedMesh, batch: Batch) -> Iterator[Layout]:
    """Yield every layout of a mesh with a batch, with and without something on the host."""
    for chain in batched.chains:
        for choice in chain:
            yield choice.on(batched.mesh, batch)


@pytest.mark.parametrize("memory_fraction", [0.94, 0.5, 0.2])
@pytest.mark.parametrize(
    ("model", "num_layers"), [("gpt-2-774m", 8), ("mixtral-8x7b", 2), ("qwen1.5-moe-a2.7b", 4)]
)
def test_what_is_ruled_out_fits_in_no_way(model: str, num_layers: int, memory_fraction: float) -> None:
    costs = cost_model(model, memory_fraction=memory_fraction, num_layers=num_layers)
    space, memory = (
        search_space(costs.setting, Constraints()),
        LeastMemory(model=costs, floors=Floors(model=costs, sizes=())),
    )
    told = {True: 0, False: 0}
    for batched in by_mesh(space):
        for batch in batched.batches:
            for layout in layouts(batched, batch):
                states = (layout.sharding, layout.on_host)
                may_hold = memory.may_hold_states(batched.mesh, [states]) and memory.may_hold(layout)
                told[may_hold] += 1
                if not may_hold:
                    assert not any(
                        fits_at_all(costs.problem(replace(layout, schedule=schedule)))
                        for schedule in schedules(space, layout.mesh, batch)
                    )
    assert told[True] + told[False] > 10


def test_a_model_that_cannot_fit_is_ruled_out_before_it_is_timed() -> None:
    costs = cost_model("llama-3-70b", memory_fraction=0.94, num_layers=None)
    space, memory = (
        search_space(costs.setting, Constraints()),
        LeastMemory(model=costs, floors=Floors(model=costs, sizes=())),
    )
    for batched in by_mesh(space):
        for layout in layouts(batched, batched.batches[0]):
            assert not memory.may_hold_states(batched.mesh, [(layout.sharding, layout.on_host)])


layer_bytes = st.tuples(st.integers(0, 50), st.integers(0, 20))


@settings(max_examples=500)
@given(
    kinds=st.lists(layer_bytes, min_size=1, max_size=3),
    chain=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    ends=st.tuples(layer_bytes, layer_bytes),
    num_stages=st.integers(1, 6),
    micro_batches=st.integers(1, 8),
    data=st.data(),
)
def test_room_for_some_split_of_a_chain_is_never_ruled_out(
    kinds: list[tuple[int, int]],
    chain: list[int],
    ends: tuple[tuple[int, int], tuple[int, int]],
    num_stages: int,
    micro_batches: int,
    data: st.DataObject,
) -> None:
    layers = [kinds[number % len(kinds)] for number in chain]
    stages = data.draw(st.lists(st.integers(0, num_stages - 1), min_size=len(layers), max_size=len(layers)))
    needed = [0] * num_stages
    placed = [*zip(sorted(stages), layers, strict=True), (0, ends[0]), (num_stages - 1, ends[1])]
    for stage, (states, kept) in placed:
        needed[stage] += states + min(num_stages - stage, micro_batches) * kept
    classes = [
        AlikeLayers(count=count, states=np.array([[float(states)]]), kept=np.array([[float(kept)]]))
        for (states, kept), count in Counter(layers).most_common()
    ]

    def may_fit(room_bytes: float) -> bool:
        held = np.array([[float(sum(ends[0]) + sum(ends[1]))]])
        passes = np.array([micro_batches])
        return bool(
            chain_may_fit(classes, held, room_bytes=room_bytes, num_stages=num_stages, micro_batches=passes)[
                0, 0
            ]
        )

    assert may_fit(max(needed))
    whole = sum(map(sum, layers)) + sum(map(sum, ends))
    assert whole == 0 or not may_fit(0.99 * whole / num_stages)
