from dataclasses import replace

from planner.cluster_presets import cluster_from_preset
from planner.growth import grown_cluster
from tests.unit.planner.joined import a_group, generations, joined


def test_a_preset_grows_by_its_number_of_devices() -> None:
    growth = grown_cluster(cluster_from_preset("h100-sxm", 16), 4, group="h100-sxm")
    assert growth is not None
    assert growth.cluster.num_devices == 64
    assert growth.change == {"/cluster/num_devices": 64}


def test_a_preset_grows_no_further_than_presets_reach() -> None:
    assert grown_cluster(cluster_from_preset("h100-sxm", 100_000), 16, group="h100-sxm") is None


def test_a_preset_of_two_systems_grows_by_both() -> None:
    growth = grown_cluster(cluster_from_preset("a100-h100-sxm", 32), 2, group="h100-sxm")
    assert growth is not None
    assert [group.num_devices for group in growth.cluster.node_groups] == [32, 32]
    assert growth.change == {"/cluster/num_devices": 64}


def test_of_own_node_groups_the_one_that_is_planned_for_grows() -> None:
    growth = grown_cluster(generations(), 2, group="h100-sxm")
    assert growth is not None
    assert [group.num_nodes for group in growth.cluster.node_groups] == [2, 4]
    assert growth.cluster.group("h100-sxm").levels[-1].devices == 32
    assert growth.change == {
        "/cluster/node_groups/1/num_nodes": 4,
        "/cluster/node_groups/1/levels/1/devices": 32,
    }


def test_a_network_that_reaches_further_needs_no_change() -> None:
    group = a_group("h100-sxm", 16)
    wide = replace(group, levels=(group.levels[0], replace(group.levels[1], devices=1024)))
    growth = grown_cluster(joined(wide), 2, group="h100-sxm")
    assert growth is not None
    assert growth.change == {"/cluster/node_groups/0/num_nodes": 4}


def test_a_node_without_a_network_does_not_grow() -> None:
    assert grown_cluster(joined(a_group("h100-sxm", 8)), 2, group="h100-sxm") is None
