"""A search over ways to split attention finds the best that any one of them has."""

import pytest

from planner.cost.model import CostModel
from planner.job import Constraints, SolverLimits
from planner.search.best_first import search
from planner.search.meshes import by_mesh, meshes
from planner.search.outcome import SearchOutcome
from planner.search.schemes import Schemes
from planner.search.space import search_space
from planner.setting import Setting
from planner.strategy import ContextParallelScheme, Mesh
from tests.unit.planner.settings import request_of, setting


def long_sequences(framework: str, *, model: str = "llama-3-8b", sequence: int = 32768) -> Setting:
    return setting(
        model=model,
        framework=framework,
        num_devices=8,
        global_batch_size=4,
        sequence_length=sequence,
        num_layers=4,
    )


def outcome(judged: Setting, **fixed: object) -> SearchOutcome:
    costs = CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request_of(judged).profiles,
        memory_fraction=0.94,
    )
    found = search(
        search_space(judged, Constraints(fixed=fixed)), costs, SolverLimits(time_limit_seconds=600)
    )
    assert found.finished
    return found


@pytest.mark.parametrize(
    ("framework", "model"),
    [("megatron-core", "llama-3-8b"), ("megatron-core", "gemma-2-9b"), ("pytorch", "llama-3-8b")],
)
def test_a_search_finds_the_best_of_all_schemes(framework: str, model: str) -> None:
    judged = long_sequences(framework, model=model)
    own = judged.framework.limits.context_parallel_schemes
    alone = {
        scheme: outcome(judged, context_parallel=4, context_parallel_scheme=scheme, micro_batch_size=1)
        for scheme in own
    }
    times = {scheme: found.best.makespan_ns for scheme, found in alone.items() if found.best is not None}
    together = outcome(judged, context_parallel=4, micro_batch_size=1)
    assert together.best is not None
    assert together.best.makespan_ns == min(times.values())
    assert times[together.best.layout.mesh.context_parallel_scheme] == together.best.makespan_ns
    assert together.total == sum(found.total for found in alone.values())
    assert together.lower_bound_ns == together.best.makespan_ns


def test_every_way_of_a_mesh_is_counted_and_enumerated() -> None:
    space = search_space(long_sequences("any"), Constraints(fixed={"context_parallel": 8}))
    (batched,) = (
        batched
        for batched in by_mesh(space)
        if (batched.mesh.tensor_parallel, batched.mesh.pipeline_parallel) == (1, 1)
    )
    kinds = [(mesh.context_parallel_scheme.value, mesh.all_to_all_degree) for mesh in batched.ways]
    assert kinds == [("ring", 1), ("all_gather", 1), ("all_to_all", 1), ("mixed", 2), ("mixed", 4)]
    assert set(batched.ways) == {mesh for mesh, _ in meshes(space) if mesh.context_parallel == 8}


@pytest.mark.parametrize(
    ("fixed", "kinds"),
    [
        ({"context_parallel_scheme": "all_to_all"}, [("all_to_all", 1)]),
        ({"all_to_all_degree": 4}, [("mixed", 4)]),
        ({"context_parallel_scheme": "mixed", "all_to_all_degree": 2}, [("mixed", 2)]),
        ({"context_parallel_scheme": "mixed", "all_to_all_degree": 3}, []),
    ],
)
def test_what_is_fixed_leaves_no_other_scheme(fixed: dict[str, object], kinds: list[tuple[str, int]]) -> None:
    schemes = Schemes(space=search_space(long_sequences("any"), Constraints(fixed=fixed)))
    ways = schemes.on(Mesh(context_parallel=8))
    assert [(mesh.context_parallel_scheme.value, mesh.all_to_all_degree) for mesh in ways] == kinds


def test_a_mesh_that_splits_no_sequence_has_one_way() -> None:
    schemes = Schemes(space=search_space(long_sequences("any"), Constraints()))
    assert schemes.on(Mesh(data_parallel=8)) == (Mesh(data_parallel=8),)
    (only,) = schemes.on(Mesh(context_parallel=8, tensor_parallel=32))[2:] or (None,)
    assert only is None
    assert schemes.on(Mesh(context_parallel=8, tensor_parallel=32))[0].context_parallel_scheme is (
        ContextParallelScheme.RING
    )
