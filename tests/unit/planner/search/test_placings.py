"""A search over the places of ranks and states finds the best that any one of them has."""

from dataclasses import replace
from itertools import product

import pytest

from planner.cost.model import CostModel
from planner.frameworks import FRAMEWORKS
from planner.job import Constraints, SolverLimits, Trainable, TrainableKind
from planner.legality import layout_violations
from planner.search.best_first import search
from planner.search.bounds import spread_bound_ns
from planner.search.meshes import by_mesh, schedules
from planner.search.outcome import SearchOutcome
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
    found = search(
        search_space(judged, Constraints(fixed=fixed)), costs_of(judged), SolverLimits(time_limit_seconds=600)
    )
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


def groups_of(judged: Setting, *, memory_fraction: float = 0.94) -> tuple[int, ...]:
    """Return how many of sixteen replicas on two nodes share parameters, gradients and optimizer states.

    What forward gathers is freed: kept until backward, it would be gathered once however many share it.
    """
    job = replace(judged.job, global_batch_size=16, sequence_length=256)
    costs = replace(costs_of(replace(judged, job=job)), memory_fraction=memory_fraction)
    fixed = {
        "data_parallel": 16,
        "zero_stage": 3,
        "micro_batch_size": 1,
        "reshard_after_forward": True,
    }
    space = search_space(costs.setting, Constraints(fixed=fixed))
    found = search(space, costs, SolverLimits(time_limit_seconds=600))
    assert found.best is not None
    sharding = found.best.layout.sharding
    return sharding.parameters, sharding.gradients, sharding.optimizer


@pytest.mark.parametrize("framework", ["pytorch", "torchtitan", "composer", "maxtext"])
def test_nodes_share_all_states_where_gradients_are_few(framework: str) -> None:
    assert groups_of(adapters(framework)) == (8, 8, 8)


@pytest.mark.parametrize(
    ("framework", "groups"),
    [
        ("torchtitan", (16, 16, 16)),
        # ZeRO++: a copy of the parameters in each node.
        ("deepspeed", (8, 16, 16)),
        # The optimizer's states between nodes.
        ("megatron-core", (8, 8, 16)),
        ("any", (8, 8, 16)),
    ],
)
def test_states_that_are_exchanged_less_are_shared_by_more(framework: str, groups: tuple[int, ...]) -> None:
    assert groups_of(setting(framework=framework, num_devices=16)) == groups


def test_all_replicas_share_what_nodes_have_no_room_for() -> None:
    judged = setting(framework="deepspeed", num_devices=16)
    assert groups_of(judged, memory_fraction=0.25) == (16, 16, 16)


def test_groups_hold_all_context_parallel_ranks_where_these_share_too() -> None:
    space = search_space(
        setting(framework="torchtitan", num_devices=16), Constraints(fixed={"context_parallel": 16})
    )
    sizes = {choice.sharding.optimizer for each in by_mesh(space) for (choice,) in each.chains}
    assert sizes == {1, 16}


def test_one_level_has_no_smaller_groups() -> None:
    space = search_space(setting(framework="any"), Constraints(fixed={"data_parallel": 8}))
    sizes = {choice.sharding.optimizer for each in by_mesh(space) for (choice,) in each.chains}
    assert sizes == {1, 8}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_group_or_order_that_a_search_considers_breaks_a_rule(framework: str) -> None:
    judged = setting(
        framework=framework, num_devices=16, num_layers=4, global_batch_size=16, sequence_length=2048
    )
    space = search_space(judged, Constraints())
    for batched in list(by_mesh(space))[::5]:
        batch = batched.batches[0]
        schedule = next(schedules(space, batched.mesh, batch))
        for (choice,), order in product(batched.chains, batched.orders):
            layout = choice.on(ordered(batched.mesh, order), batch)
            assert layout_violations(judged, replace(layout, schedule=schedule)) == ()
