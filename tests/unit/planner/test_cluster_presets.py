import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cluster import Topology
from planner.cluster_presets import (
    balanced_extents,
    cluster_from_preset,
    cluster_preset_document,
    cluster_preset_names,
    smallest_whole,
    system_names,
    systems_of,
)
from planner.cost.collective import CollectiveCosts, group_shape
from planner.errors import InvalidRequest, UnknownName
from planner.workload.operators import Collective

DEVICES = {
    "a100-sxm-40gb": "A100-SXM4-40GB",
    "a100-sxm-80gb": "A100-SXM4-80GB",
    "h100-sxm": "H100-SXM5-80GB",
    "h200-sxm": "H200-SXM-141GB",
    "b200": "B200-SXM-180GB",
    "gb200-nvl72": "GB200-186GB",
    "v100-sxm-32gb": "V100-SXM2-32GB",
    "mi250x-frontier": "MI250X-GCD-64GB",
    "mi300x": "MI300X-192GB",
    "l40s": "L40S-48GB",
    "p4d": "A100-SXM4-40GB",
    "p5": "H100-SXM5-80GB",
}
CONTRACT = {
    "h100-sxm",
    "h200-sxm",
    "b200",
    "gb200-nvl72",
    "a100-sxm-80gb",
    "a100-sxm-40gb",
    "v100-sxm-32gb",
    "mi300x",
    "mi250x-frontier",
    "l40s",
    "rtx-4090",
    "gtx-1650-ethernet",
}


@pytest.mark.parametrize(("preset", "device"), DEVICES.items())
def test_a_system_has_its_device_host_and_drives(preset: str, device: str) -> None:
    (group,) = cluster_from_preset(preset, 16).node_groups
    assert group.device.name == device
    assert group.host is not None
    assert group.host.memory_bytes > group.device.memory_bytes
    assert group.nvme is not None
    assert cluster_preset_document(preset)["sources"]


def test_the_systems_that_scripts_name_are_there() -> None:
    assert set(cluster_preset_names()) >= CONTRACT


@pytest.mark.parametrize("preset", cluster_preset_names())
def test_every_figure_has_a_source_or_is_said_to_be_unconfirmed(preset: str) -> None:
    document = cluster_preset_document(preset)
    assert document["sources"]
    assert document["unconfirmed"]
    assert document["title"]


@pytest.mark.parametrize("preset", system_names())
@given(power=st.integers(1, 10))
def test_whole_nodes_are_joined_by_levels_that_nest(preset: str, power: int) -> None:
    per_node = cluster_preset_document(preset)["devices_per_node"]
    num_nodes = 2**power
    cluster = cluster_from_preset(preset, num_nodes * per_node)
    (group,) = cluster.node_groups
    sizes = [level.devices for level in group.levels]
    assert cluster.num_devices == num_nodes * per_node
    assert group.num_nodes == num_nodes
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == num_nodes * per_node
    assert all(outer % inner == 0 for inner, outer in itertools.pairwise(sizes))
    assert all(level.shape is None or math.prod(level.shape) == level.devices for level in group.levels)


@pytest.mark.parametrize("preset", system_names())
def test_every_system_can_be_priced(preset: str) -> None:
    per_node = cluster_preset_document(preset)["devices_per_node"]
    (group,) = cluster_from_preset(preset, 8 * per_node).node_groups
    costs = CollectiveCosts(group, ())
    for size in (2, per_node, 8 * per_node):
        shape = group_shape(group, size=size)
        assert costs.seconds(Collective.ALL_REDUCE, payload_bytes=2**20, shape=shape).seconds >= 0


@pytest.mark.parametrize(
    ("num_devices", "levels"),
    [(4, [4]), (8, [8]), (72, [72]), (128, [64, 128]), (144, [72, 144]), (512, [64, 512])],
)
def test_racks_are_filled_evenly(num_devices: int, levels: list[int]) -> None:
    (group,) = cluster_from_preset("gb200-nvl72", num_devices).node_groups
    assert [level.devices for level in group.levels] == levels
    assert group.devices_per_node == 4 or num_devices < 4


def test_nodes_that_cannot_be_spread_evenly_over_racks_are_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        cluster_from_preset("gb200-nvl72", 76)
    assert caught.value.nearest_legal == (72, 80)


@pytest.mark.parametrize(
    ("preset", "num_devices", "shape"),
    [
        ("tpu-v4", 64, (4, 4, 4)),
        ("tpu-v5p", 32, (2, 4, 4)),
        ("tpu-v5e", 256, (16, 16)),
        ("tpu-v3", 4, (2, 2)),
    ],
)
def test_a_slice_is_as_even_as_its_chips_allow(preset: str, num_devices: int, shape: tuple[int, ...]) -> None:
    (group,) = cluster_from_preset(preset, num_devices).node_groups
    assert group.levels[0].shape == shape
    assert group.levels[0].topology is Topology.TORUS


def test_more_chips_than_a_pod_are_several_slices() -> None:
    (group,) = cluster_from_preset("tpu-v5e", 1024).node_groups
    assert [(level.name, level.devices) for level in group.levels] == [("ici", 256), ("dcn", 1024)]


def test_links_to_devices_of_a_full_mesh_that_are_not_used_do_not_count() -> None:
    whole, pair = (cluster_from_preset("mi300x", number).node_groups[0].levels[0] for number in (8, 2))
    assert pair.bandwidth_bytes_per_second == whole.bandwidth_bytes_per_second / 7


def test_levels_nest_from_die_to_island() -> None:
    (group,) = cluster_from_preset("mi250x-frontier", 4096).node_groups
    assert [level.devices for level in group.levels] == [2, 8, 1024, 4096]
    assert group.levels[-1].oversubscription > 1


@pytest.mark.parametrize(("devices", "dimensions", "extents"), [(12, 2, (3, 4)), (7, 3, (1, 1, 7))])
def test_extents_are_as_even_as_divisors_allow(
    devices: int, dimensions: int, extents: tuple[int, ...]
) -> None:
    assert balanced_extents(devices, dimensions) == extents


@pytest.mark.parametrize("num_devices", range(1, 9))
def test_a_part_of_a_node_is_one_smaller_node(num_devices: int) -> None:
    (group,) = cluster_from_preset("h100-sxm", num_devices).node_groups
    assert (group.num_nodes, group.devices_per_node) == (1, num_devices)
    assert [level.devices for level in group.levels] == [num_devices]


@pytest.mark.parametrize(
    ("num_devices", "nearest"), [(0, (1,)), (-8, (1,)), (9, (8, 16)), (20, (16, 24)), (2**21, (2**20,))]
)
def test_a_number_that_fills_no_whole_nodes_is_refused(num_devices: int, nearest: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        cluster_from_preset("a100-sxm-80gb", num_devices)
    assert caught.value.pointer == "/cluster/num_devices"
    assert caught.value.nearest_legal == nearest


def test_two_generations_have_equally_many_devices_and_a_link_between_them() -> None:
    cluster = cluster_from_preset("a100-h100-sxm", 32)
    assert [(group.device.name, group.num_nodes) for group in cluster.node_groups] == [
        ("A100-SXM4-80GB", 2),
        ("H100-SXM5-80GB", 2),
    ]
    link = cluster.link_between("h100-sxm", "a100-sxm-80gb")
    assert link is not None
    networks = [group.levels[-1].bandwidth_bytes_per_second for group in cluster.node_groups]
    assert link.bandwidth_bytes_per_second == min(networks)
    assert smallest_whole("a100-h100-sxm") == 16
    assert systems_of("a100-h100-sxm") == cluster.group_names
    assert "a100-h100-sxm" not in system_names()


@pytest.mark.parametrize(("num_devices", "nearest"), [(1, (2,)), (15, (14, 16)), (24, (16, 32)), (0, (2,))])
def test_devices_that_two_systems_cannot_share_evenly_are_refused(
    num_devices: int, nearest: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        cluster_from_preset("a100-h100-sxm", num_devices)
    assert caught.value.pointer == "/cluster/num_devices"
    assert caught.value.nearest_legal == nearest


def test_an_unknown_system_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UnknownName) as caught:
        cluster_from_preset("h100", 8)
    assert "h100-sxm" in caught.value.nearest_legal
