"""The least memory of a mesh is below what any of its plans needs."""

from collections.abc import Iterator

import pytest

from planner.cost.floors import Floors
from planner.cost.least_memory import LeastMemory
from planner.cost.model import CostModel
from planner.job import Constraints
from planner.search.capacity import fits_at_all
from planner.search.meshes import BatchedMesh, by_mesh
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
                    assert not fits_at_all(costs.problem(layout), any_schedule=True)
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
