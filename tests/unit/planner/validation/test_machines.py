import pytest

from planner.validation.machines import cluster_of, device_of
from planner.validation.rows import Reader, UnusableRow
from tests.unit.planner.validation.published import row


@pytest.mark.parametrize(
    ("device", "gibibytes", "link", "name"),
    [
        ("A100", "80", "NVLink3", "A100-SXM4-80GB"),
        ("A100", "40", "NVLink3", "A100-SXM4-40GB"),
        ("H100", "80", "NVLink4", "H100-SXM5-80GB"),
        ("h100", "80", "NVLink4", "H100-SXM5-80GB"),
        ("H200", "141", "NVLink4", "H200-SXM-141GB"),
        ("B200", "180", "NVLink5", "B200-SXM-180GB"),
    ],
)
def test_name_memory_and_link_tell_a_device(device: str, gibibytes: str, link: str, name: str) -> None:
    reader = Reader(row=row(device=device, device_mem_gib=gibibytes, intra_link=link))
    assert device_of(reader) == name
    assert not reader.assumed


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("H100-SXM5-80GB", "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
    ],
)
def test_a_whole_name_or_an_alias_tells_a_device_and_its_memory(device: str, name: str) -> None:
    reader = Reader(row=row(device=device, device_mem_gib="", intra_link="NVLink"))
    assert device_of(reader) == name
    assert not reader.assumed


def test_an_unsaid_memory_is_the_largest() -> None:
    reader = Reader(row=row(device="A100", device_mem_gib=""))
    assert device_of(reader) == "A100-SXM4-80GB"
    assert reader.assumed == {"device_mem_gib"}


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("", "no device"),
        ("RTX-3090+Titan-RTX", "several kinds of device, and nothing says which stage sits on which"),
        ("Abacus", "device Abacus is not known yet"),
        ("V100", "no V100 is known with such a memory"),
    ],
)
def test_devices_that_cannot_be_priced_are_refused(device: str, reason: str) -> None:
    with pytest.raises(UnusableRow, match=reason):
        device_of(Reader(row=row(device=device)))


def test_a_part_of_a_node_is_joined_inside_alone() -> None:
    (group,) = cluster_of(Reader(row=row(gpus="4"))).node_groups
    assert (group.num_nodes, group.devices_per_node) == (1, 4)
    assert [level.devices for level in group.levels] == [4]


def test_several_nodes_have_a_network() -> None:
    (group,) = cluster_of(Reader(row=row(gpus="64", inter_link="IB-NDR400"))).node_groups
    assert (group.num_nodes, group.devices_per_node) == (8, 8)
    assert [level.devices for level in group.levels] == [8, 64]


def test_nodes_of_another_size_are_joined_inside_alone() -> None:
    (group,) = cluster_of(Reader(row=row(gpus="16", gpus_per_node="4", inter_link="IB-NDR400"))).node_groups
    assert (group.num_nodes, group.devices_per_node) == (4, 4)
    assert [level.devices for level in group.levels] == [4, 16]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [({"gpus": "", "dp": ""}, "no gpus"), ({"gpus": "12"}, "gpus is no multiple of gpus_per_node")],
)
def test_nodes_that_do_not_come_out_are_refused(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(UnusableRow, match=reason):
        cluster_of(Reader(row=row(**cells)))


def test_unsaid_nodes_and_links_are_those_of_the_preset_system() -> None:
    reader = Reader(row=row(gpus="16", gpus_per_node="", intra_link="", inter_link=""))
    (group,) = cluster_of(reader).node_groups
    assert (group.num_nodes, group.devices_per_node) == (2, 8)
    assert reader.assumed == {"gpus_per_node", "intra_link", "inter_link"}


def test_an_unsaid_number_of_devices_is_that_of_all_degrees() -> None:
    reader = Reader(row=row(gpus="", tp="2", pp="2", cp="", dp="4"))
    (group,) = cluster_of(reader).node_groups
    assert group.num_nodes * group.devices_per_node == 16
    assert "gpus" in reader.assumed
