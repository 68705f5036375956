"""Bounds of whole meshes and of their variants lie below the best plan that trying everything finds there."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

import pytest

from planner.cost.ground import pipeline_shape
from planner.cost.model import CostModel
from planner.planning import PlanRequest, searched_space
from planner.search.bounds import apart_bound_ns, lower_bound_ns, rules_out, spread_bound_ns
from planner.search.mesh_floors import MeshFloors
from planner.search.meshes import BatchedMesh, by_mesh
from planner.search.placings import ordered, rank_orders
from planner.search.space import Space
from planner.strategy import Batch, Layout, Mesh, Recompute, Schedule, ScheduleName, Sharding
from tests.unit.planner.exhaustive import best_of_layout, every_layout
from tests.unit.planner.small_requests import small_request

REQUESTS = 50
VARIANTS_EACH = 40
"""Together 2,000 of a mesh, a batch and ways to shard and to recompute."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What a search bounds before it looks at schedules."""

    mesh: Mesh
    batch: Batch
    sharding: Sharding
    recompute: tuple[Recompute, ...]


# Counting covered lines would double its time; what it reaches has tests of its own.
@pytest.mark.no_cover
@pytest.mark.parametrize("number", range(REQUESTS))
def test_no_plan_of_a_mesh_beats_its_bounds(number: int) -> None:
    request = small_request(number)
    space = searched_space(request)
    model = cost_model(request, space)
    batched = list(by_mesh(space))
    considered, floors = considered_variants(batched), floors_of(batched, model)
    ideal = model.ideal_ns(space.num_devices)
    for variant, layouts in some_variants(request):
        for apart in (False, True):
            own = [layout for layout in layouts if layout.schedule.name.splits_backward is apart]
            answers = [answer for layout in own if (answer := checked_ns(space, model, layout)) is not None]
            if not answers:
                continue
            assert ideal <= min(answers)
            # Only what cannot fit has no floor at all, and what a search leaves out as idle.
            usual = usually_numbered(variant, space)
            if usual in considered:
                assert floors[usual, apart] <= min(answers), variant


def usually_numbered(variant: Variant, space: Space) -> Variant:
    """Return a variant with the first order of ranks, as it is bounded with all others."""
    return replace(variant, mesh=ordered(variant.mesh, rank_orders(space)[0]))


def checked_ns(space: Space, model: CostModel, layout: Layout) -> int | None:
    """Return the best step time of a layout, none of whose bounds is above it; None where nothing fits."""
    problem = model.problem(layout)
    best = best_of_layout(space.setting, layout, problem)
    if best is not None:
        bounds = (lower_bound_ns(problem), before_schedule_ns(model, layout))
        assert all(bound is not None and bound <= best for bound in bounds), (layout, bounds, best)
        assert not rules_out(problem, best)
    return best


def before_schedule_ns(model: CostModel, layout: Layout) -> int | None:
    """Return the bound of a layout before its schedule is chosen among those of its kind."""
    if not layout.schedule.name.splits_backward:
        return spread_bound_ns(model.problem(replace(layout, schedule=Schedule())))
    plain = replace(layout, schedule=Schedule(name=ScheduleName.ZB_H1))
    folded = replace(layout, schedule=Schedule(name=ScheduleName.ZB_V, virtual_stages=2))
    return apart_bound_ns(replace(model.problem(folded), shape=pipeline_shape(plain)))


def some_variants(request: PlanRequest) -> Iterator[tuple[Variant, list[Layout]]]:
    """Yield some variants of a request, by chance but always the same, with all their layouts."""
    grouped: Mapping[Variant, list[Layout]] = defaultdict(list)
    for layout in every_layout(request):
        variant = Variant(
            mesh=layout.mesh, batch=layout.batch, sharding=layout.sharding, recompute=layout.recompute
        )
        grouped[variant].append(layout)
    order = list(grouped)
    Random(len(order)).shuffle(order)  # noqa: S311 - the same every time, and no secret
    for variant in islice(order, VARIANTS_EACH):
        yield variant, grouped[variant]


def considered_variants(batched: Sequence[BatchedMesh]) -> set[Variant]:
    """Return what a search considers."""
    return {
        Variant(mesh=mesh, batch=batch, sharding=choice.sharding, recompute=choice.recompute)
        for each in batched
        for mesh in each.ways
        for batch in each.batches
        for (choice,) in each.chains
    }


def floors_of(batched: Sequence[BatchedMesh], model: CostModel) -> dict[tuple[Variant, bool], int]:
    """Return the floor of every variant that may fit the memory, or its mesh's or family's if higher.

    By whether gradients of weights are made apart.
    """
    floors = MeshFloors(batched, model)
    found = {}
    for family in floors.families(batched):
        for timed in floors.of(family, is_late=lambda _: False):
            node = floors.held(timed, is_late=lambda _: False)
            if node is None:
                continue
            floor = floors.floor(node, is_late=lambda _: False)
            for mesh in floor.ways or (floor.mesh,):
                for own in floor.variants:
                    (choice,) = own.chain
                    variant = Variant(
                        mesh=mesh, batch=own.batch, sharding=choice.sharding, recompute=choice.recompute
                    )
                    bound = max(own.bound_ns, node.bound_ns, timed.bound_ns, family.bound_ns)
                    found[variant, own.apart] = bound
    return found


def cost_model(request: PlanRequest, space: Space) -> CostModel:
    return CostModel(
        setting=space.setting,
        group=space.setting.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=request.constraints.memory_fraction,
    )
