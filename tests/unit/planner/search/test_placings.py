"""A search over the places of ranks and states finds the best that any one of them has."""

from dataclasses import replace

import pytest

from planner.cost.model import CostModel
from planner.job import Constraints, SolverLimits, Trainable, TrainableKind
from planner.search.best_first import SearchOutcome, search
from planner.search.bounds import spread_bound_ns
from planner.search.meshes import by_mesh
from planner.search.placings import ordered
from planner.search.space import search_space
from planner.setting import Setting
from planner.strategy import DEFAULT_RANK_ORDER, PIPELINE_INSIDE
from planner.workload.trainable import trained_workload
from tests.unit.planner.settings import request_of, setting


def adapters(framework: str = "megatron-core", *, model: str = "llama-3-8b") -> Setting:
    """Return a job of two nodes that sends activations and next to no gradients."""
    judged = setting(
        model=model,
        framework=framework,
        num_devices=16,
        num_layers=4,
        global_batch_size=8,
        sequence_length=4096,
    )
    trainable = Trainable(kind=TrainableKind.LORA, rank=16)
    job = replace(judged.job, trainable=trainable)
    return replace(judged, job=job, workload=trained_workload(judged.workload, job))


def costs_of(judged: Setting) -> CostModel:
    return CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request_of(judged).profiles,
        memory_fraction=0.94,
    )


def outcome(judged: Setting, **fixed: object) -> SearchOutcome:
    found = search(search_space(judged, Constraints(fixed=fixed)), costs_of(judged), SolverLimits())
    assert found.finished
    return found


def test_a_search_finds_the_best_of_all_orders() -> None:
    judged = adapters()
    degrees = {"tensor_parallel": 2, "pipeline_parallel": 4, "data_parallel": 2, "micro_batch_size": 1}
    times = {}
    for order in (DEFAULT_RANK_ORDER, PIPELINE_INSIDE):
        alone = outcome(judged, rank_order=order, **degrees).best
        assert alone is not None
        assert alone.layout.mesh.rank_order == order
        times[order] = alone.makespan_ns
    together = outcome(judged, **degrees).best
    assert together is not None
    assert together.makespan_ns == min(times.values())
    assert together.layout.mesh.rank_order == PIPELINE_INSIDE
    assert times[PIPELINE_INSIDE] < times[DEFAULT_RANK_ORDER]


@pytest.mark.parametrize("framework", ["megatron-core", "any"])
def test_a_mesh_is_bounded_below_each_of_its_orders(framework: str) -> None:
    judged = adapters(framework, model="mixtral-8x7b")
    costs, space = costs_of(judged), search_space(judged, Constraints(fixed={"micro_batch_size": 1}))
    for batched in list(by_mesh(space))[::17]:
        for choice in (chain[0] for chain in batched.chains):
            layout = choice.on(batched.mesh, batched.batches[0])
            each = [replace(layout, mesh=ordered(layout.mesh, order)) for order in batched.orders]
            bound = spread_bound_ns(costs.problem(layout, others=each[1:]))
            for exact in (spread_bound_ns(costs.problem(one)) for one in each):
                assert bound is None or exact is None or bound <= exact


def test_experts_have_their_stages_where_all_else_has_them() -> None:
    space = search_space(adapters(model="mixtral-8x7b"), Constraints())
    meshes = [ordered(batched.mesh, order) for batched in by_mesh(space) for order in batched.orders]
    assert all(mesh.stages_agree for mesh in meshes)
    assert any(mesh.rank_order == PIPELINE_INSIDE and mesh.expert_parallel > 1 for mesh in meshes)


def test_one_switch_makes_all_orders_equal() -> None:
    space = search_space(setting(num_devices=8), Constraints())
    assert all(len(batched.orders) == 1 for batched in by_mesh(space))
