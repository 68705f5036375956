"""Levels on the wire: how they are joined, and how they nest."""

from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.node_group import NodeGroupDocument
from planner.cluster import Topology
from planner.cost.collective import CollectiveCosts, group_shape
from planner.workload.operators import Collective

PAYLOAD_BYTES = 2**28


def level(name: str, devices: int, **facts: object) -> dict[str, Any]:
    return {
        "name": name,
        "devices": devices,
        "bandwidth_bytes_per_second": 1e11,
        "latency_seconds": 2e-6,
    } | facts


def group(*levels: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "a",
        "num_nodes": 8,
        "devices_per_node": 8,
        "device": "H100-SXM5-80GB",
        "levels": list(levels),
    }


def all_reduce_seconds(*levels: dict[str, Any], size: int, stride: int = 1) -> float:
    read = NodeGroupDocument.model_validate(group(*levels)).to_group(pointer="")
    shape = group_shape(read, size=size, stride=stride)
    costs = CollectiveCosts(read, ())
    return costs.seconds(Collective.ALL_REDUCE, payload_bytes=PAYLOAD_BYTES, shape=shape).seconds


@pytest.mark.parametrize(
    ("topology", "shape"),
    [
        ("switch", None),
        ("ring", None),
        ("ring", [64]),
        ("mesh", None),
        ("mesh", [8, 8]),
        ("torus", [4, 4, 4]),
    ],
)
def test_devices_may_be_joined_in_any_topology(topology: str, shape: list[int] | None) -> None:
    document = group(level("links", 64, topology=topology, shape=shape))
    read = NodeGroupDocument.model_validate(document).to_group(pointer="")
    assert read.levels[0].topology is Topology(topology)
    assert read.levels[0].shape == (None if shape is None else tuple(shape))
    assert NodeGroupDocument.from_group(read).to_group(pointer="") == read


def test_a_torus_of_nodes_stands_around_a_switch_in_each() -> None:
    nested = (level("nvlink", 8), level("links", 64, topology="torus", shape=[2, 4]))
    assert all_reduce_seconds(*nested, size=64) > all_reduce_seconds(*nested, size=8)


@pytest.mark.parametrize(
    "levels",
    [
        pytest.param([level("links", 64, topology="torus")], id="a torus without a shape"),
        pytest.param([level("links", 64, topology="torus", shape=[4, 4])], id="too few devices"),
        pytest.param([level("links", 64, shape=[4, 4, 4])], id="the shape of a switch"),
        pytest.param([level("links", 64, topology="ring", shape=[8, 8])], id="a ring of two dimensions"),
        pytest.param([level("node", 8), level("links", 64, topology="mesh", shape=[4, 4])], id="no domains"),
        pytest.param([level("socket", 3), level("node", 64)], id="levels that do not nest"),
    ],
)
def test_links_that_cannot_be_are_refused(levels: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError):
        NodeGroupDocument.model_validate(group(*levels))


NESTED = (
    level("die-pair", 2, bandwidth_bytes_per_second=2e11),
    level("socket", 4),
    level("node", 8, bandwidth_bytes_per_second=6e10),
    level("rail", 16, bandwidth_bytes_per_second=5e10),
    level("rack", 32, bandwidth_bytes_per_second=5e10),
    level("spine", 64, bandwidth_bytes_per_second=5e10, oversubscription=4.0),
)


def test_levels_nest_from_die_pair_to_spine_and_wider_groups_take_longer() -> None:
    seconds = [all_reduce_seconds(*NESTED, size=size) for size in (2, 4, 8, 16, 32, 64)]
    assert seconds == sorted(seconds)


def test_an_oversubscribed_spine_is_felt_by_what_crosses_it_alone() -> None:
    fair = (*NESTED[:-1], NESTED[-1] | {"oversubscription": 1.0})
    assert all_reduce_seconds(*NESTED, size=2, stride=32) > 3 * all_reduce_seconds(*fair, size=2, stride=32)
    assert all_reduce_seconds(*NESTED, size=2, stride=8) == all_reduce_seconds(*fair, size=2, stride=8)
