import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cluster_presets import cluster_from_preset, cluster_preset_document, cluster_preset_names
from planner.errors import InvalidRequest, UnknownName

DEVICES = {
    "a100-sxm-40gb": "A100-SXM4-40GB",
    "a100-sxm-80gb": "A100-SXM4-80GB",
    "h100-sxm": "H100-SXM5-80GB",
    "h200-sxm": "H200-SXM-141GB",
    "b200": "B200-SXM-180GB",
}


@pytest.mark.parametrize(("preset", "device"), DEVICES.items())
def test_a_system_has_its_device_host_and_drives(preset: str, device: str) -> None:
    (group,) = cluster_from_preset(preset, 16).node_groups
    assert group.device.name == device
    assert group.host is not None
    assert group.host.memory_bytes > group.device.memory_bytes
    assert group.nvme is not None
    assert cluster_preset_document(preset)["sources"]


@pytest.mark.parametrize("preset", cluster_preset_names())
@given(num_nodes=st.integers(2, 1024))
def test_whole_nodes_are_joined_by_a_network_over_all_of_them(preset: str, num_nodes: int) -> None:
    per_node = cluster_preset_document(preset)["devices_per_node"]
    cluster = cluster_from_preset(preset, num_nodes * per_node)
    (group,) = cluster.node_groups
    assert cluster.num_devices == num_nodes * per_node
    assert group.num_nodes == num_nodes
    assert group.levels[0].devices == per_node
    assert group.levels[-1].devices == num_nodes * per_node


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


def test_an_unknown_system_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UnknownName) as caught:
        cluster_from_preset("h100", 8)
    assert caught.value.nearest_legal[0] == "h100-sxm"
