"""Bounds over all ways to split attention lie below what each of them takes; what cannot win never does."""

from dataclasses import replace

import pytest

from planner.cost.any_scheme import AnyScheme
from planner.cost.model import CostModel
from planner.cost.pipeline import PipelineProblem
from planner.job import Constraints
from planner.search.bounds import spread_bound_ns
from planner.search.meshes import BatchedMesh, by_mesh, variants
from planner.search.space import search_space
from tests.unit.planner.settings import request_of, setting

CASES = (
    ("llama-3-8b", "any", 8192),
    ("llama-3-8b", "megatron-core", 65536),
    ("gemma-2-9b", "megatron-core", 16384),
    ("deepseek-v2-lite", "maxtext", 8192),
)


def cost_model(model: str, framework: str, sequence: int) -> CostModel:
    judged = setting(
        model=model,
        framework=framework,
        num_devices=16,
        global_batch_size=16,
        sequence_length=sequence,
        num_layers=4,
    )
    return CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request_of(judged).profiles,
        memory_fraction=0.94,
    )


def several_ways(costs: CostModel) -> list[BatchedMesh]:
    found = [
        batched for batched in by_mesh(search_space(costs.setting, Constraints())) if len(batched.ways) > 1
    ]
    return found[:: max(len(found) // 12, 1)]


def is_nowhere_worse(one: PipelineProblem, other: PipelineProblem) -> bool:
    """Whether no way to run a layer takes or keeps more, but for rounding."""
    return all(
        ours.forward_ns <= theirs.forward_ns + 1
        and ours.backward_ns <= theirs.backward_ns + 1
        and ours.saved_bytes <= theirs.saved_bytes
        and ours.working_bytes <= theirs.working_bytes
        for mine, theirs_too in zip(one.classes, other.classes, strict=True)
        for ours, theirs in zip(mine.options, theirs_too.options, strict=True)
    )


@pytest.mark.parametrize(("model", "framework", "sequence"), CASES)
def test_a_bound_over_all_ways_undercuts_each(model: str, framework: str, sequence: int) -> None:
    costs = cost_model(model, framework, sequence)
    bounds, meshes = AnyScheme(model=costs), several_ways(costs)
    assert meshes
    for batched in meshes:
        batch = batched.batches[0]
        for layout in variants(search_space(costs.setting, Constraints()), batched.mesh, batch):
            relaxed = bounds.problem(costs.problem(layout), batched.ways, batch.micro_batch_size)
            least = spread_bound_ns(relaxed)
            for mesh in batched.ways:
                exact = spread_bound_ns(costs.problem(replace(layout, mesh=mesh)))
                assert exact is None or (least is not None and least <= exact)


@pytest.mark.parametrize(("model", "framework", "sequence"), CASES)
def test_what_is_dropped_is_nowhere_better_than_something_kept(
    model: str, framework: str, sequence: int
) -> None:
    costs = cost_model(model, framework, sequence)
    bounds, dropped = AnyScheme(model=costs), 0
    for batched in several_ways(costs):
        batch = batched.batches[0]
        kept = bounds.undominated(batched.ways, batch.micro_batch_size)
        assert kept
        for layout in variants(search_space(costs.setting, Constraints()), batched.mesh, batch):
            problems = {mesh: costs.problem(replace(layout, mesh=mesh)) for mesh in batched.ways}
            for mesh in set(batched.ways) - set(kept):
                dropped += 1
                assert any(is_nowhere_worse(problems[way], problems[mesh]) for way in kept)
    assert dropped
