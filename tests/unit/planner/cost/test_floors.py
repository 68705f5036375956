"""What meshes take at least is never above what their plans take, and close to it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from planner.cost.floors import Floors
from planner.cost.layer import recomputed_modules
from planner.cost.ledger import TALLIES
from planner.cost.model import CostModel
from planner.framework import FULL_RECOMPUTE, NO_RECOMPUTE, SELECTIVE_RECOMPUTE
from planner.job import Constraints
from planner.search.bounds import spread_bound_ns
from planner.search.master import Solution, solve
from planner.search.meshes import by_mesh, variants
from planner.search.space import Space, search_space
from planner.strategy import NOTHING_ON_HOST, Batch, HostShares, Mesh
from planner.workload.recomputation import saved_bytes
from tests.unit.planner.settings import request_of, setting

SIZES = (1, 2, 3, 4, 6, 12)
MODES = (NO_RECOMPUTE, SELECTIVE_RECOMPUTE, FULL_RECOMPUTE)
MODELS = (
    "gpt-2-774m",
    "llama-3-8b",
    "mixtral-8x7b",
    "qwen1.5-moe-a2.7b",
    "deepseek-v2-lite",
    "mamba-130m",
    "qwen3-next-80b-a3b",
    "nemotron-h-8b",
    "llava-1.5-7b",
    "resnet-50",
    "dlrm-criteo-1tb",
    "vit-l-16",
    "bert-large",
    "t5-large",
)


def cost_model(model: str, *, num_layers: int | None = None, framework: str = "megatron-core") -> CostModel:
    judged = setting(
        model=model,
        framework=framework,
        num_devices=8,
        global_batch_size=24,
        sequence_length=1024,
        num_layers=num_layers,
    )
    return CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request_of(judged).profiles,
        memory_fraction=0.94,
    )


MESHES = (
    Mesh(data_parallel=8),
    Mesh(data_parallel=2, tensor_parallel=4, sequence_parallel=True),
    Mesh(data_parallel=2, tensor_parallel=2, pipeline_parallel=2, expert_parallel=2),
    Mesh(context_parallel=2, tensor_parallel=2, pipeline_parallel=2, expert_tensor_parallel=2),
)


def close_below(least: float, exact: float) -> bool:
    return least <= exact * (1 + 1e-12) and least >= 0.97 * exact


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("model", MODELS)
def test_a_swept_layer_takes_and_keeps_no_more_than_one_of_each_size(model: str, mesh: Mesh) -> None:
    costs = cost_model(model)
    floors = Floors(model=costs, sizes=SIZES)
    clock = costs.clock(mesh, costs.kernels, costs.links(mesh).layer_collective, TALLIES)
    for layer in {layer for members in costs.members.values() for layer in members}:
        swept = floors.layer(layer, mesh)
        for place, size in enumerate(SIZES):
            passes = clock.passes(layer, costs.layer_cut(layer, costs.cut(mesh, size), mesh)[0])
            for mode in MODES:
                exact = clock.cost(passes, mode)
                forward, backward = swept.seconds(mode, len(SIZES))
                assert close_below(forward[place], exact.forward.seconds)
                assert close_below(backward[place], exact.backward.seconds)
                modules = recomputed_modules(mode)
                kept = saved_bytes(passes.operators, recompute=modules)
                assert close_below(swept.saved(modules).at(size), kept)


def problems(
    costs: CostModel, space: Space, *, on_host: HostShares = NOTHING_ON_HOST
) -> Iterator[tuple[float, int]]:
    """Yield what floors say of each variant of a space, and the step time of its best plan under 1F1B."""
    sizes = sorted({batch.micro_batch_size for batched in by_mesh(space) for batch in batched.batches})
    floors = Floors(model=costs, sizes=sizes)
    for batched in by_mesh(space):
        for batch in batched.batches:
            places = np.array([sizes.index(batch.micro_batch_size)])
            passes = np.array([batch.num_micro_batches])
            for layout in variants(space, batched.mesh, batch):
                problem = costs.problem(replace(layout, on_host=on_host))
                batched_by = (places, passes)
                floor = floors.step_ns(
                    batched.mesh, layout.sharding, layout.recompute, *batched_by, count=len(sizes)
                )
                if on_host.optimizer:
                    updated = floors.updated_step_ns(
                        batched.mesh,
                        layout.sharding,
                        on_host,
                        layout.recompute,
                        *batched_by,
                        count=len(sizes),
                    )
                    floor = np.maximum(floor, updated)
                if spread_bound_ns(problem) is not None:
                    solved = solve(problem)
                    if isinstance(solved, Solution):
                        yield float(floor[0]), solved.makespan_ns


@pytest.mark.parametrize("framework", ["megatron-core", "any"])
@pytest.mark.parametrize(("model", "num_layers"), [("gpt-2-774m", 5), ("llama-3-8b", 4)])
def test_no_plan_of_a_mesh_beats_its_floor(model: str, num_layers: int, framework: str) -> None:
    costs = cost_model(model, num_layers=num_layers, framework=framework)
    space = search_space(costs.setting, Constraints(bounds={"micro_batch_size": (1, 2)}))
    found = list(problems(costs, space))
    assert len(found) > 50
    assert all(floor <= step_ns for floor, step_ns in found)
    assert max(floor / step_ns for floor, step_ns in found) > 0.9


@pytest.mark.parametrize(("framework", "share"), [("megatron-core", 0.3), ("pytorch", 1.0)])
def test_no_plan_whose_hosts_update_beats_its_floor(framework: str, share: float) -> None:
    costs = cost_model("llama-3-8b", num_layers=4, framework=framework)
    space = search_space(costs.setting, Constraints(bounds={"micro_batch_size": (1, 1)}))
    on_host = costs.setting.framework.limits.offload.shares(share)
    found = list(problems(costs, space, on_host=on_host))
    assert len(found) > 20
    assert all(floor <= step_ns for floor, step_ns in found)
    # Updates on the host take most of such a step, so that floors without them would say little.
    assert np.median([floor / step_ns for floor, step_ns in found]) > 0.5
    assert max(floor / step_ns for floor, step_ns in found) > 0.8


@pytest.mark.parametrize("model", ["mixtral-8x7b", "qwen1.5-moe-a2.7b", "deepseek-v2-lite", "llama-3-8b"])
def test_a_sample_takes_no_less_than_is_said_before_experts_are_spread(model: str) -> None:
    costs = cost_model(model)
    space = search_space(costs.setting, Constraints())
    floors = Floors(model=costs, sizes=SIZES)
    told = []
    for mesh in {batched.mesh for batched in by_mesh(space)}:
        sharding = next(iter(variants(space, mesh, Batch(micro_batch_size=1, num_micro_batches=1)))).sharding
        passes = np.full(len(SIZES), mesh.pipeline_parallel)
        steps = floors.step_ns(
            mesh, sharding, (NO_RECOMPUTE,), np.arange(len(SIZES)), passes, count=len(SIZES)
        )
        told.append(floors.least_work(mesh).chain_ns / float((steps / SIZES).min()))
    assert 0.3 < max(told) <= 1
