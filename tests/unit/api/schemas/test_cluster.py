"""Clusters on the wire: presets, node groups, devices by name and by numbers."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.cluster import ClusterDocument
from planner.cluster import Topology
from planner.cluster_presets import cluster_from_preset, cluster_preset_names
from planner.errors import AmbiguousName, UnknownName

GROUP: dict[str, Any] = {
    "name": "a",
    "num_nodes": 2,
    "devices_per_node": 8,
    "device": "NVIDIA H100 80GB HBM3",
    "levels": [
        {"name": "nvlink", "devices": 8, "bandwidth_bytes_per_second": 4.5e11, "latency_seconds": 2e-6},
        {"name": "network", "devices": 16, "bandwidth_bytes_per_second": 5e10, "latency_seconds": 5e-6},
    ],
}
PAIR = [GROUP, {**GROUP, "name": "b"}]
LINK: dict[str, Any] = {"groups": ["a", "b"], "bandwidth_bytes_per_second": 3e9, "latency_seconds": 3e-5}


@pytest.mark.parametrize("name", cluster_preset_names())
@pytest.mark.parametrize("num_devices", [2, 8, 64])
def test_a_preset_survives_its_document(name: str, num_devices: int) -> None:
    cluster = cluster_from_preset(name, num_devices)
    read = ClusterDocument.from_cluster(cluster).to_cluster()
    assert read == replace(cluster, name="custom")


def test_a_device_may_be_called_by_any_of_its_names() -> None:
    cluster = ClusterDocument.model_validate({"node_groups": [GROUP]}).to_cluster()
    assert cluster.node_groups[0].device.name == "H100-SXM5-80GB"
    assert cluster.node_groups[0].levels[0].topology is Topology.SWITCH


@pytest.mark.parametrize(("name", "error"), [("A100", AmbiguousName), ("A1000000", UnknownName)])
def test_a_device_that_is_not_clear_is_refused_with_choices(name: str, error: type[Exception]) -> None:
    document = ClusterDocument.model_validate(
        {"node_groups": [GROUP, {**GROUP, "name": "b", "device": name}]}
    )
    with pytest.raises(error) as caught:
        document.to_cluster()
    assert isinstance(caught.value, AmbiguousName | UnknownName)
    assert caught.value.pointer == "/cluster/node_groups/1/device"
    assert caught.value.nearest_legal


def test_two_groups_may_be_joined() -> None:
    document = ClusterDocument.model_validate({"node_groups": PAIR, "between_groups": [LINK]})
    assert document.to_cluster().between_groups[0].groups == ("a", "b")


def test_one_device_needs_no_links() -> None:
    group = {**GROUP, "num_nodes": 1, "devices_per_node": 1, "levels": []}
    assert ClusterDocument.model_validate({"node_groups": [group]}).to_cluster().num_devices == 1


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({}, id="neither form"),
        pytest.param({"preset": "h100-sxm", "num_devices": 8, "node_groups": [GROUP]}, id="both forms"),
        pytest.param({"preset": "h100-sxm"}, id="a preset without a number"),
        pytest.param({"node_groups": [GROUP], "num_devices": 16}, id="groups with a number"),
        pytest.param({"node_groups": []}, id="no groups"),
        pytest.param({"node_groups": [GROUP, GROUP]}, id="two groups of one name"),
        pytest.param({"node_groups": [GROUP], "between_groups": [LINK]}, id="a link to nowhere"),
        pytest.param({"node_groups": [{**GROUP, "levels": []}]}, id="devices without links"),
        pytest.param({"node_groups": PAIR, "between_groups": [LINK, LINK]}, id="two links of one pair"),
    ],
)
def test_a_cluster_that_cannot_be_meant_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ClusterDocument.model_validate(document)
