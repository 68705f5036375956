"""Stages cost what their own node group makes of them, wherever the others sit."""

from dataclasses import replace

import pytest

from planner.cluster import Cluster
from planner.cost.placed_layout import PlacedLayout, place_on_groups
from planner.errors import InvalidRequest
from planner.expansion import expand_short_plan
from planner.played_plan import play_placed
from planner.strategy import ShortPlan
from tests.unit.planner.joined import a_group, generations, joined, request_on, setting_on

PLAN = ShortPlan(tensor_parallel=4, pipeline_parallel=4, data_parallel=2)
INTERLEAVED = replace(PLAN, virtual_stages=2)


def placed(
    cluster: Cluster, *names: str, plan: ShortPlan = PLAN, model: str = "gpt-2-355m"
) -> tuple[PlacedLayout, int]:
    """Return a plan with its stages on the groups that are named, and how long a step takes."""
    setting, request = setting_on(cluster, model=model), request_on(cluster, model=model)
    fixed = expand_short_plan(plan, setting)
    assert fixed.assignment is not None
    layout = place_on_groups(
        fixed.layout, names, setting=setting, profiles=request.profiles, memory_fraction=0.94
    )
    return layout, play_placed(layout, fixed.layout, fixed.assignment).played.makespan_ns


@pytest.mark.parametrize("plan", [PLAN, INTERLEAVED, replace(PLAN, tensor_parallel=8, data_parallel=1)])
@pytest.mark.parametrize("preset", ["a100-sxm-80gb", "h100-sxm"])
def test_two_equal_groups_joined_as_they_are_inside_cost_hardly_more_than_one(
    preset: str, plan: ShortPlan
) -> None:
    whole = a_group(preset, 32)
    network = whole.levels[-1].bandwidth_bytes_per_second
    halves = joined(a_group(preset, 16, name="a"), a_group(preset, 16, name="b"), bandwidth=network)
    _, together = placed(Cluster(name="custom", node_groups=(whole,)), *[preset] * 4, plan=plan)
    _, apart = placed(halves, "a", "a", "b", "b", plan=plan)
    assert apart == pytest.approx(together, rel=0.01)


def test_a_stage_has_the_kernels_and_the_memory_of_its_own_group() -> None:
    layout, _ = placed(generations(), "a100-sxm-80gb", "a100-sxm-80gb", "h100-sxm", "h100-sxm")
    old, new = layout.stages[0].costs, layout.stages[-1].costs
    assert old.layers[0].forward.seconds > new.layers[0].forward.seconds
    assert old.capacity_bytes == generations().group("a100-sxm-80gb").device.memory_bytes
    assert new.capacity_bytes == generations().group("h100-sxm").device.memory_bytes
    assert old.layers[0].states == new.layers[0].states


def test_a_step_on_two_generations_lies_between_those_on_either() -> None:
    pair = joined(a_group("a100-sxm-80gb", 32), a_group("h100-sxm", 32))
    _, old = placed(pair, *["a100-sxm-80gb"] * 4)
    _, new = placed(pair, *["h100-sxm"] * 4)
    _, both = placed(pair, *["a100-sxm-80gb"] * 2, *["h100-sxm"] * 2)
    assert new < both <= old


def test_only_the_way_between_groups_takes_the_link_between_them() -> None:
    slow, fast = (
        joined(a_group("h100-sxm", 16, name="a"), a_group("h100-sxm", 16, name="b"), bandwidth=bandwidth)
        for bandwidth in (1e9, 50e9)
    )
    (there, slow_ns), (here, fast_ns) = (placed(pair, "a", "a", "b", "b") for pair in (slow, fast))
    assert slow_ns > fast_ns
    assert there.stages[0].to_next == here.stages[0].to_next
    assert there.stages[1].to_next.seconds > here.stages[1].to_next.seconds
    assert there.stages[2].to_previous == there.stages[1].to_next
    assert there.stages[3].to_next.seconds == 0


def test_chunks_go_around_over_the_link_between_the_last_and_the_first_group() -> None:
    layout, _ = placed(generations(), *["a100-sxm-80gb"] * 2, *["h100-sxm"] * 2, plan=INTERLEAVED)
    assert layout.stages[3].to_next == layout.stages[1].to_next == layout.stages[0].to_previous


def test_every_stage_waits_for_the_slowest_group() -> None:
    layout, _ = placed(generations(), *["a100-sxm-80gb"] * 2, *["h100-sxm"] * 2)
    own = [stage.costs.barrier.seconds for stage in layout.stages]
    assert layout.barrier.seconds > max(own)


def test_tied_gradients_are_added_up_over_the_groups_of_both_ends() -> None:
    pair = generations()
    apart, _ = placed(pair, *["a100-sxm-80gb"] * 2, *["h100-sxm"] * 2)
    home, _ = placed(pair, "h100-sxm", "a100-sxm-80gb", "a100-sxm-80gb", "h100-sxm")
    assert apart.problem.tied_ns > 0
    assert home.problem.tied_ns == home.stages[0].costs.tied.nanoseconds
    untied, _ = placed(pair, *["a100-sxm-80gb"] * 2, *["h100-sxm"] * 2, model="llama-3-8b")
    assert untied.problem.tied_ns == 0


def test_groups_that_nothing_joins_are_refused_by_name() -> None:
    alone = replace(generations(), between_groups=())
    with pytest.raises(InvalidRequest, match="a100-sxm-80gb and h100-sxm") as refused:
        placed(alone, *["a100-sxm-80gb"] * 2, *["h100-sxm"] * 2)
    assert refused.value.pointer == "/cluster/between_groups"
