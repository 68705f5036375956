"""Where stages sit: in order, where they are put, and never where they cannot."""

from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cluster import Cluster
from planner.errors import InvalidRequest, UnknownName
from planner.placement import (
    groups_in_order,
    largest_data_parallel,
    named_group,
    placed_groups,
    stage_placements,
)
from planner.strategy import (
    DEFAULT_RANK_ORDER,
    Batch,
    DeviceRange,
    Mesh,
    Schedule,
    Sharding,
    Stage,
    StagePlacement,
    TrainingPlan,
)
from tests.unit.planner.joined import a_group, generations, joined

PAIR = generations()
MESH = Mesh(tensor_parallel=4, data_parallel=2, pipeline_parallel=4)
OLD, NEW = PAIR.group_names


def plan(*placements: StagePlacement | None, mesh: Mesh = MESH) -> TrainingPlan:
    """Return a plan without layers whose stages lie where they are put."""
    return TrainingPlan(
        mesh=mesh,
        batch=Batch(micro_batch_size=1, num_micro_batches=1),
        schedule=Schedule(),
        sharding=Sharding(),
        stages=tuple(
            Stage(stage=number, placement=() if place is None else (place,), chunks=())
            for number, place in enumerate(placements)
        ),
    )


def on(*names: str, mesh: Mesh = MESH) -> TrainingPlan:
    return plan(*stage_placements(mesh, names), mesh=mesh)


def test_stages_fill_the_groups_in_their_order() -> None:
    assert groups_in_order(MESH, PAIR).node_groups == (OLD, OLD, NEW, NEW)
    three = replace(MESH, pipeline_parallel=3)
    assert groups_in_order(three, PAIR).node_groups == (OLD, OLD, NEW)
    assert groups_in_order(three, PAIR.only(NEW)).node_groups == (NEW,) * 3


def test_a_group_that_no_stage_fits_on_is_passed_over() -> None:
    cluster = joined(a_group("a100-sxm-80gb", 4), a_group("h100-sxm", 32))
    assert groups_in_order(replace(MESH, pipeline_parallel=2), cluster).node_groups == ("h100-sxm",) * 2


def test_a_stage_that_spans_two_groups_is_refused_with_the_degrees_that_fit() -> None:
    wide = Mesh(tensor_parallel=2, data_parallel=16)
    found = groups_in_order(wide, PAIR)
    assert found.node_groups == ()
    (violation,) = found.violations
    assert violation.pointer == "/plan/data_parallel"
    assert violation.nearest_legal == (8,)
    assert f"{OLD} holds 0" in violation.rule


@given(
    tensor=st.integers(1, 8), stages=st.integers(1, 9), devices=st.sampled_from([(4, 16), (16, 16), (8, 32)])
)
def test_the_most_replicas_that_fit_do_fit_and_one_more_does_not(
    tensor: int, stages: int, devices: tuple[int, int]
) -> None:
    cluster = joined(a_group("a100-sxm-80gb", devices[0]), a_group("h100-sxm", devices[1]))
    mesh = Mesh(tensor_parallel=tensor, pipeline_parallel=stages)
    most = largest_data_parallel(mesh, cluster)
    found = groups_in_order(replace(mesh, data_parallel=most), cluster)
    assert len(found.node_groups) == stages or most == 1
    assert not groups_in_order(replace(mesh, data_parallel=most + 1), cluster).node_groups


@given(
    names=st.permutations([OLD, OLD, NEW, NEW]),
    order=st.permutations(DEFAULT_RANK_ORDER),
)
def test_every_device_holds_one_rank_in_any_order_of_stages_and_ranks(
    names: list[str], order: list[str]
) -> None:
    mesh = replace(MESH, rank_order=tuple(order))
    placements = stage_placements(mesh, names)
    for name in PAIR.group_names:
        own = chain.from_iterable(place.devices for place in placements if place.node_group == name)
        devices = [run.first + number * run.stride for run in own for number in range(run.count)]
        assert sorted(devices) == list(range(16))
    assert placed_groups(on(*names, mesh=mesh), PAIR).node_groups == tuple(names)


def test_a_plan_without_places_takes_the_groups_in_order() -> None:
    assert placed_groups(plan(*[None] * 4), PAIR) == groups_in_order(MESH, PAIR)


def test_runs_may_be_cut_in_any_way() -> None:
    whole = on(OLD, OLD, NEW, NEW)
    place = whole.stages[1].placement[0]
    cut = (DeviceRange(first=8, count=4, stride=2), DeviceRange(first=9, count=4, stride=2))
    stages = (
        whole.stages[0],
        replace(whole.stages[1], placement=(replace(place, devices=cut),)),
        *whole.stages[2:],
    )
    assert not placed_groups(replace(whole, stages=stages), PAIR).violations


@pytest.mark.parametrize(
    "devices", [DeviceRange(first=0, count=8), DeviceRange(first=8, count=7), DeviceRange(first=9, count=8)]
)
def test_other_devices_than_the_rank_order_gives_are_refused_with_those(devices: DeviceRange) -> None:
    places = [stage.placement[0] for stage in on(OLD, OLD, NEW, NEW).stages]
    (violation,) = placed_groups(
        plan(places[0], replace(places[1], devices=(devices,)), *places[2:]), PAIR
    ).violations
    assert violation.pointer == "/plan/stages/1/placement/0/devices"
    assert violation.nearest_legal == ({"first": 8, "count": 8, "stride": 1},)


def test_more_stages_than_a_group_holds_are_refused() -> None:
    rules = [violation.rule for violation in placed_groups(on(OLD, OLD, OLD, NEW), PAIR).violations]
    assert any(f"3 stages of 8 devices each are put on {OLD}" in rule for rule in rules)


def test_more_ranks_than_devices_are_left_to_the_rule_that_counts_them() -> None:
    huge = replace(MESH, data_parallel=16)
    for found in (groups_in_order(huge, PAIR), placed_groups(on(OLD, OLD, NEW, NEW, mesh=huge), PAIR)):
        assert (found.node_groups, found.violations) == ((), ())


def test_a_stage_in_two_places_cannot_be_priced_yet() -> None:
    stages = on(OLD, OLD, NEW, NEW).stages
    both = replace(stages[0], placement=(*stages[0].placement, *stages[2].placement))
    with pytest.raises(InvalidRequest) as refused:
        placed_groups(replace(on(OLD, OLD, NEW, NEW), stages=(both, *stages[1:])), PAIR)
    assert refused.value.pointer == "/plan/stages/0/placement"


def test_a_stage_with_degrees_of_its_own_cannot_be_priced_yet() -> None:
    places = [stage.placement[0] for stage in on(OLD, OLD, NEW, NEW).stages]
    with pytest.raises(InvalidRequest) as refused:
        placed_groups(plan(replace(places[0], tensor_parallel=8), *places[1:]), PAIR)
    assert refused.value.pointer == "/plan/stages/0/placement/0/tensor_parallel"
    assert refused.value.nearest_legal == (4,)


def test_a_group_that_is_not_there_is_refused_with_those_that_are() -> None:
    lost = replace(on(OLD).stages[0].placement[0], node_group="c")
    with pytest.raises(UnknownName) as refused:
        placed_groups(plan(lost, *[stage.placement[0] for stage in on(OLD, OLD, NEW, NEW).stages[1:]]), PAIR)
    assert refused.value.pointer == "/plan/stages/0/placement/0/node_group"
    assert refused.value.nearest_legal == PAIR.group_names


def test_one_group_may_be_named_among_several() -> None:
    def named(name: str | None) -> Cluster:
        return named_group(PAIR, name, pointer="/plan/node_group")

    assert named(None) is PAIR
    assert named(NEW).node_groups == (PAIR.group(NEW),)
    with pytest.raises(UnknownName):
        named("c")
