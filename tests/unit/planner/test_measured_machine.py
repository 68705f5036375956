"""A machine that was profiled, as a cluster."""

from typing import Any

import pytest

from planner.cluster import Cluster
from planner.errors import InvalidRequest
from planner.measured_machine import cluster_of_machine, describes_machine, machine_device
from planner.profile import Profile
from tests.unit.api.machines import (
    BYTES_PER_SECOND,
    FACTS,
    FLOPS_PER_SECOND,
    LINK_BYTES_PER_SECOND,
    START_SECONDS,
    machine_profile,
)


def profile(**changes: Any) -> Profile:  # noqa: ANN401 - any part of a document
    return Profile.from_document(machine_profile(**changes))


def cluster(num_devices: int, **changes: Any) -> Cluster:  # noqa: ANN401 - any part of a document
    return cluster_of_machine(profile(**changes), num_devices=num_devices, name="local")


def test_the_device_has_the_best_rates_that_were_measured() -> None:
    device = machine_device(profile())
    assert device.name == "cpu-small"
    assert device.peak_flops_per_second == {"fp32": pytest.approx(FLOPS_PER_SECOND)}
    assert device.memory_bandwidth_bytes_per_second == pytest.approx(BYTES_PER_SECOND)
    assert device.memory_bytes == 8 * 2**30


def test_the_link_has_the_best_bus_bandwidth_and_the_smallest_start() -> None:
    (level,) = cluster(2).node_groups[0].levels
    assert level.devices == 2
    assert level.bandwidth_bytes_per_second == pytest.approx(LINK_BYTES_PER_SECOND, rel=0.01)
    assert level.latency_seconds == pytest.approx(START_SECONDS / 2, rel=0.02)


def test_one_device_needs_no_link() -> None:
    assert cluster(1, collectives=[]).node_groups[0].levels == ()


def test_a_known_device_keeps_its_datasheet_and_has_the_memory_that_it_reports() -> None:
    device = machine_device(profile(device="H100-SXM5-80GB"))
    assert device.peak_flops_per_second["bf16"] > 9e14
    assert device.memory_bytes == 8 * 2**30


def test_a_second_node_is_joined_by_what_was_measured_between_nodes() -> None:
    rows = [{**row, "world_size": 4} for row in machine_profile()["collectives"]]
    facts = {**FACTS, "processes": 4}
    group = cluster(4, facts=facts, collectives=[*machine_profile()["collectives"], *rows]).node_groups[0]
    assert (group.num_nodes, group.devices_per_node) == (2, 2)
    assert [level.devices for level in group.levels] == [2, 4]


@pytest.mark.parametrize(
    ("num_devices", "changes", "nearest"),
    [
        pytest.param(4, {}, (2,), id="more than were measured"),
        pytest.param(3, {"facts": {**FACTS, "processes": 4}}, (2, 4), id="part of a node"),
        pytest.param(2, {"collectives": []}, (1,), id="an unmeasured link"),
    ],
)
def test_a_number_of_devices_that_nobody_measured_is_refused(
    num_devices: int, changes: dict[str, Any], nearest: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        cluster(num_devices, **changes)
    assert caught.value.pointer == "/cluster/num_devices"
    assert caught.value.nearest_legal == nearest


@pytest.mark.parametrize(
    "changes", [{"facts": {}}, {"kernels": machine_profile()["kernels"][:2]}, {"kernels": []}]
)
def test_a_profile_that_says_too_little_makes_no_cluster(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        cluster(1, **changes)
    assert caught.value.pointer == "/cluster/preset"


def test_a_published_profile_describes_no_machine() -> None:
    assert describes_machine(FACTS)
    assert not describes_machine({"licences": {}})
    assert not describes_machine({"device": {"memory_bytes": None}})
