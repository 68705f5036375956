"""A node group by its figures, filled up from the systems that are known."""

import pytest

from api.pages.form_machines import links_inside, networks, whole_group
from api.schemas.node_group import NodeGroupDocument

FIGURES = {
    "num_nodes": 4,
    "devices_per_node": 8,
    "device": "H100-SXM5-80GB",
    "levels": {"0": {"name": "nvlink4"}, "1": {"name": "infiniband-ndr"}},
}


def test_links_are_as_most_of_the_known_systems_have_them() -> None:
    inside, network = whole_group(FIGURES)["levels"]
    assert inside == {
        "name": "nvlink4",
        "devices": 8,
        "bandwidth_bytes_per_second": 450e9,
        "latency_seconds": 2e-6,
        "in_network_reduction": True,
    }
    assert (network["devices"], network["bandwidth_bytes_per_second"]) == (32, 50e9)


def test_what_is_said_of_a_link_holds() -> None:
    said = {"0": {"name": "nvlink4", "bandwidth_bytes_per_second": 1e9}, "1": {"name": "my-own"}}
    inside, network = whole_group({**FIGURES, "levels": said})["levels"]
    assert inside["bandwidth_bytes_per_second"] == 1e9
    assert network == {"name": "my-own", "devices": 32}


def test_one_node_needs_no_network() -> None:
    assert [level["name"] for level in whole_group({**FIGURES, "num_nodes": 1})["levels"]] == ["nvlink4"]


@pytest.mark.parametrize(("per_node", "share"), [(8, 1.5625e9), (2, 4 * 1.5625e9), (16, 1.5625e9)])
def test_the_fewer_devices_share_the_port_of_a_node_the_more_each_has(per_node: int, share: float) -> None:
    levels = {"0": {"name": "pcie4"}, "1": {"name": "ethernet-100g"}}
    _, network = whole_group({**FIGURES, "devices_per_node": per_node, "levels": levels})["levels"]
    assert network["bandwidth_bytes_per_second"] == share
    assert network["devices_per_link"] == min(per_node, 8)


@pytest.mark.parametrize("inside", links_inside())
@pytest.mark.parametrize("network", ["infiniband-hdr", "ethernet-25g"])
def test_every_link_that_is_offered_makes_a_group_that_the_service_takes(inside: str, network: str) -> None:
    levels = {"0": {"name": inside}, "1": {"name": network}}
    group = NodeGroupDocument.model_validate(whole_group({**FIGURES, "levels": levels}))
    assert group.to_group(pointer="").levels[0].name == inside


def test_every_network_that_is_offered_joins_nodes() -> None:
    for network in networks():
        levels = {"0": {"name": "pcie4"}, "1": {"name": network}}
        group = NodeGroupDocument.model_validate(whole_group({**FIGURES, "levels": levels}))
        assert group.to_group(pointer="").num_devices == 32


@pytest.mark.parametrize("count", [0, -1, 1e300, "many", None])
def test_a_number_that_is_none_is_left_for_the_service_to_refuse(count: object) -> None:
    group = whole_group({**FIGURES, "num_nodes": count})
    assert group["num_nodes"] == count
    assert [level["devices"] for level in group["levels"]] == [8]
