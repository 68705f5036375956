from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cluster import NodeGroup
from planner.cluster_presets import cluster_from_preset
from planner.cost.collective import CollectiveCosts, group_shape
from planner.cost.collective_model import bytes_per_rank, hops
from planner.cost.corrections import Correction, Corrections, Kind
from planner.devices import device_by_name
from planner.profile import Estimate, Profile, Provenance, builtin_profile, builtin_profiles
from planner.workload.operators import Collective
from tests.unit.planner.cost.machines import bench_device, bench_profile, node_group
from tests.unit.planner.profile_documents import collective_row, profile_document

SYSTEMS = ["a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "gb200-nvl72", "l40s"]
NUM_DEVICES = 512
TOLERANCE = 1 - 1e-9
MEBIBYTE = 2**20

operations = st.sampled_from([one for one in Collective if one is not Collective.SEND_RECEIVE])
payloads = st.integers(1, 2**36)
strides = st.sampled_from([1, 2, 4, 8, 16])


@cache
def system_group(system: str) -> NodeGroup:
    return cluster_from_preset(system, NUM_DEVICES).node_groups[0]


@cache
def system_costs(system: str) -> CollectiveCosts:
    return CollectiveCosts(system_group(system), builtin_profiles())


def estimate(
    costs: CollectiveCosts,
    group: NodeGroup,
    operation: Collective,
    payload: float,
    *,
    size: int,
    stride: int = 1,
) -> Estimate:
    return costs.seconds(operation, payload_bytes=payload, shape=group_shape(group, size=size, stride=stride))


def on_system(system: str, operation: Collective, payload: float, *, size: int, stride: int = 1) -> Estimate:
    return estimate(system_costs(system), system_group(system), operation, payload, size=size, stride=stride)


def bus_bandwidth(system: str, operation: Collective, payload: float, *, size: int, stride: int = 1) -> float:
    seconds = on_system(system, operation, payload, size=size, stride=stride).seconds
    return bytes_per_rank(operation, payload, size) / seconds / 1e9


@pytest.mark.parametrize("system", SYSTEMS)
@given(
    operation=operations,
    payload=payloads,
    more=st.integers(0, 2**34),
    size=st.integers(2, 32),
    stride=strides,
)
def test_more_bytes_are_never_faster(
    system: str, operation: Collective, payload: int, more: int, size: int, stride: int
) -> None:
    here = on_system(system, operation, payload, size=size, stride=stride).seconds
    assert (
        on_system(system, operation, payload + more, size=size, stride=stride).seconds >= here * TOLERANCE > 0
    )


@pytest.mark.parametrize("system", SYSTEMS)
@given(
    operation=operations, payload=payloads, size=st.integers(1, 31), more=st.integers(0, 31), stride=strides
)
def test_a_larger_group_is_never_faster(
    system: str, operation: Collective, payload: int, size: int, more: int, stride: int
) -> None:
    larger = min(size + more, 32)
    here = on_system(system, operation, payload, size=size, stride=stride).seconds
    assert on_system(system, operation, payload, size=larger, stride=stride).seconds >= here * TOLERANCE


@settings(max_examples=60)  # every example makes three sets of curves
@given(
    operation=operations,
    payload=payloads,
    size=st.integers(2, 32),
    stride=st.sampled_from([1, 2, 8]),
    node_factor=st.floats(1, 20),
    network_factor=st.floats(1, 20),
    device=st.sampled_from(["A100-SXM4-80GB", "H100-SXM5-80GB", "L40S-48GB"]),
    network=st.sampled_from(["infiniband-hdr", "infiniband-ndr", "ethernet"]),
)
def test_a_better_link_is_never_slower(
    operation: Collective,
    payload: int,
    size: int,
    stride: int,
    node_factor: float,
    network_factor: float,
    device: str,
    network: str,
) -> None:
    stride = min(stride, 32 // size)
    seconds = []
    for node, between in ((1.0, 1.0), (node_factor, 1.0), (node_factor, network_factor)):
        group = node_group(
            device_by_name(device),
            node_bandwidth=node * 50e9,
            network_bandwidth=between * 10e9,
            network=network,
        )
        costs = CollectiveCosts(group, builtin_profiles())
        seconds.append(estimate(costs, group, operation, payload, size=size, stride=stride).seconds)
    assert seconds[0] >= seconds[1] * TOLERANCE
    assert seconds[1] >= seconds[2] * TOLERANCE


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("operation", Collective)
def test_a_group_of_one_and_no_bytes_take_no_time(system: str, operation: Collective) -> None:
    assert on_system(system, operation, 1e9, size=1).seconds == 0.0
    assert on_system(system, operation, 0.0, size=2).seconds == 0.0


@pytest.mark.parametrize(
    ("system", "operation", "size", "stride", "low", "high"),
    [
        ("a100-sxm-80gb", Collective.ALL_REDUCE, 8, 1, 220, 236),
        ("h100-sxm", Collective.ALL_REDUCE, 8, 1, 430, 480),
        ("h200-sxm", Collective.ALL_REDUCE, 8, 1, 430, 485),
        ("b200", Collective.ALL_REDUCE, 8, 1, 640, 850),
        ("a100-sxm-80gb", Collective.REDUCE_SCATTER, 8, 1, 195, 235),
        ("h100-sxm", Collective.ALL_GATHER, 8, 1, 320, 400),
        ("a100-sxm-80gb", Collective.ALL_REDUCE, 16, 1, 150, 195),
        ("h100-sxm", Collective.ALL_REDUCE, 96, 1, 320, 390),
        ("a100-sxm-80gb", Collective.ALL_REDUCE, 8, 8, 20, 25),
        ("h100-sxm", Collective.REDUCE_SCATTER, 64, 8, 40, 50),
    ],
)
def test_large_collectives_reach_the_bandwidths_that_were_measured(
    system: str, operation: Collective, size: int, stride: int, low: float, high: float
) -> None:
    assert low < bus_bandwidth(system, operation, 4096 * MEBIBYTE, size=size, stride=stride) < high


@pytest.mark.parametrize(
    ("system", "size", "stride", "payload", "seconds"),
    [
        ("a100-sxm-80gb", 2, 1, 32 * MEBIBYTE, 132e-6),
        ("h100-sxm", 2, 1, 32 * MEBIBYTE, 101e-6),
        ("h100-sxm", 2, 8, 32 * MEBIBYTE, 744e-6),
        ("a100-sxm-80gb", 2, 8, 32 * MEBIBYTE, 1.48e-3),
    ],
)
def test_a_message_goes_over_nvlink_inside_a_node_and_over_the_network_between(
    system: str, size: int, stride: int, payload: int, seconds: float
) -> None:
    assert size == 2
    message = system_costs(system).send_receive(payload_bytes=payload, stride=stride)
    assert message.seconds == pytest.approx(seconds, rel=0.05)


def test_what_was_measured_is_said_to_be_measured() -> None:
    exact = on_system("a100-sxm-80gb", Collective.ALL_REDUCE, 64 * MEBIBYTE, size=8)
    beside = on_system("a100-sxm-80gb", Collective.ALL_REDUCE, 64 * MEBIBYTE + 512, size=8)
    across = on_system("a100-sxm-80gb", Collective.ALL_REDUCE, 64 * MEBIBYTE, size=16)
    assert [one.provenance for one in (exact, beside, across)] == list(Provenance)
    assert exact.relative_error < beside.relative_error < across.relative_error


def test_links_measured_with_the_same_chip_are_never_called_measured() -> None:
    message = on_system("a100-sxm-40gb", Collective.ALL_GATHER, 64 * MEBIBYTE, size=8)
    assert message.provenance is Provenance.INTERPOLATED


def test_a_slower_link_than_the_measured_one_takes_longer_in_proportion() -> None:
    device = device_by_name("A100-SXM4-80GB")
    payload = 1024 * MEBIBYTE
    seconds = []
    for bandwidth in (300e9, 150e9):
        group = node_group(device, node_bandwidth=bandwidth)
        costs = CollectiveCosts(group, [builtin_profile("a100-sxm-80gb/published")])
        one = estimate(costs, group, Collective.ALL_REDUCE, payload, size=8)
        seconds.append(one.seconds)
    assert one.provenance is Provenance.INTERPOLATED
    assert seconds[1] / seconds[0] == pytest.approx(2.0, rel=0.05)


def test_an_oversubscribed_network_is_slower() -> None:
    group = system_group("a100-sxm-80gb")
    crowded = replace(group, levels=(group.levels[0], replace(group.levels[1], oversubscription=2.0)))
    costs = CollectiveCosts(crowded, builtin_profiles())
    slow = estimate(costs, crowded, Collective.ALL_REDUCE, 2**32, size=8, stride=8)
    fast = on_system("a100-sxm-80gb", Collective.ALL_REDUCE, 2**32, size=8, stride=8)
    assert slow.seconds / fast.seconds == pytest.approx(2.0, rel=0.05)


def test_a_network_that_adds_moves_the_data_once() -> None:
    group = system_group("a100-sxm-80gb")
    adding = replace(group, levels=(group.levels[0], replace(group.levels[1], in_network_reduction=True)))
    costs = CollectiveCosts(adding, builtin_profiles())
    fast = estimate(costs, adding, Collective.ALL_REDUCE, 2**32, size=64, stride=8)
    slow = on_system("a100-sxm-80gb", Collective.ALL_REDUCE, 2**32, size=64, stride=8)
    assert 1.5 < slow.seconds / fast.seconds < 2.0


def test_a_misconfigured_cluster_does_not_speak_for_a_sound_one() -> None:
    document = builtin_profile("h100-sxm/published").to_document()
    odd = [row for row in document["collectives"] if "misconfigured" in (row["inter_link"] or "")]
    assert odd
    document["collectives"] = [row for row in document["collectives"] if row not in odd]
    group = system_group("h100-sxm")
    costs = CollectiveCosts(group, [Profile.from_document(document)])
    without = estimate(costs, group, Collective.ALL_REDUCE, 2**28, size=16)
    assert on_system("h100-sxm", Collective.ALL_REDUCE, 2**28, size=16) == without


def test_levels_that_nest_are_all_crossed() -> None:
    group = node_group(device_by_name("L40S-48GB"))
    network = group.levels[1]
    nested = replace(
        group,
        num_nodes=8,
        levels=(
            group.levels[0],
            replace(network, name="rail", devices=16),
            replace(network, name="spine", devices=64),
        ),
    )
    costs = CollectiveCosts(nested, [])
    rail = estimate(costs, nested, Collective.ALL_REDUCE, 2**30, size=16)
    spine = estimate(costs, nested, Collective.ALL_REDUCE, 2**30, size=64)
    assert rail.provenance is spine.provenance is Provenance.DATASHEET
    assert spine.seconds > rail.seconds


def test_devices_without_measurements_are_priced_by_their_links() -> None:
    group = node_group(device_by_name("TPU-v4"), node_bandwidth=25e9)
    one = estimate(CollectiveCosts(group, builtin_profiles()), group, Collective.ALL_REDUCE, 2**30, size=8)
    assert one.provenance is Provenance.DATASHEET
    assert one.seconds == pytest.approx(2**30 * 2 * 7 / 8 / (0.8 * 25e9), rel=0.02)


def machine_group() -> NodeGroup:
    return replace(
        node_group(bench_device(), num_nodes=1, devices_per_node=4, node_bandwidth=1e9),
        levels=node_group(bench_device(), num_nodes=1, devices_per_node=4, node_bandwidth=1e9).levels[:1],
    )


def test_a_machine_is_priced_from_its_own_all_reduces() -> None:
    costs = CollectiveCosts(machine_group(), [bench_profile()])
    exact = estimate(costs, machine_group(), Collective.ALL_REDUCE, 2**16, size=4)
    assert exact.provenance is Provenance.MEASURED
    assert exact.seconds == pytest.approx(4e-4 + 2**16 / 1e9 * 3 / 4)


@pytest.mark.parametrize(
    "operation", [Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL]
)
def test_other_operations_follow_from_an_all_reduce_of_half_the_bytes(operation: Collective) -> None:
    costs = CollectiveCosts(machine_group(), [bench_profile()])
    derived = estimate(costs, machine_group(), operation, 2**17, size=4)
    reduce = estimate(costs, machine_group(), Collective.ALL_REDUCE, 2**16, size=4)
    assert derived.seconds == pytest.approx(reduce.seconds)
    assert derived.provenance is Provenance.INTERPOLATED
    assert derived.relative_error > reduce.relative_error


def test_a_machine_of_several_nodes_is_priced_from_its_own_rows_between_them() -> None:
    rows = [collective_row(2, 2**20, 0.5, ranks_per_node=1), collective_row(2, 2**24, 2.0, ranks_per_node=1)]
    profile = Profile.from_document(profile_document(collectives=rows))
    group = node_group(bench_device(), num_nodes=2, devices_per_node=1, network="network")
    costs = CollectiveCosts(group, [profile])
    assert estimate(costs, group, Collective.ALL_REDUCE, 2**20, size=2).seconds == pytest.approx(0.5)


@given(operation=operations, payload=payloads, size=st.integers(2, 32), stride=strides)
def test_the_lower_bound_is_never_above_the_time(
    operation: Collective, payload: int, size: int, stride: int
) -> None:
    costs, group = system_costs("h100-sxm"), system_group("h100-sxm")
    shape = group_shape(group, size=size, stride=stride)
    bound = costs.lower_bound_seconds(operation, payload_bytes=payload, shape=shape)
    assert 0 < bound <= costs.seconds(operation, payload_bytes=payload, shape=shape).seconds


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Collective.ALL_REDUCE, 6),
        (Collective.BROADCAST, 3),
        (Collective.ALL_GATHER, 7),
        (Collective.ALL_TO_ALL, 1),
        (Collective.SEND_RECEIVE, 1),
    ],
)
def test_hops_follow_each_other_in_trees_and_rings(operation: Collective, expected: int) -> None:
    assert hops(operation, 8) == expected
    assert hops(operation, 1) == 0


def silent(group: NodeGroup, *, devices_per_link: int) -> NodeGroup:
    network = replace(group.levels[1], devices_per_link=devices_per_link)
    return replace(group, levels=(group.levels[0], network))


@pytest.mark.parametrize(("talking", "speedup"), [(1, 4.0), (2, 2.0), (4, 1.0), (None, 1.0)])
def test_a_device_may_use_the_share_of_silent_neighbours(talking: int | None, speedup: float) -> None:
    group = silent(node_group(device_by_name("TPU-v4"), network="ethernet"), devices_per_link=4)
    costs = CollectiveCosts(group, [])
    alone, together = (
        costs.seconds(
            Collective.ALL_REDUCE,
            payload_bytes=2**34,
            shape=group_shape(group, size=4, stride=8, talking=number),
        ).seconds
        for number in (talking, 8)
    )
    assert together / alone == pytest.approx(speedup, rel=0.01)


def test_rows_of_all_devices_talking_say_nothing_of_a_few() -> None:
    group = silent(system_group("h100-sxm"), devices_per_link=4)
    costs = CollectiveCosts(group, builtin_profiles())
    shape = group_shape(group, size=2, stride=8, talking=1)
    alone = costs.seconds(Collective.ALL_REDUCE, payload_bytes=2**28, shape=shape)
    assert alone.provenance is Provenance.DATASHEET


def costs_of(preset: str, num_devices: int) -> tuple[CollectiveCosts, NodeGroup]:
    (group,) = cluster_from_preset(preset, num_devices).node_groups
    return CollectiveCosts(group, builtin_profiles()), group


def rate(
    preset: str, operation: Collective, *, size: int, stride: int = 1, num_devices: int = 512
) -> tuple[float, Provenance]:
    """Return the bus bandwidth of a GiB in GB/s, and where it comes from."""
    costs, group = costs_of(preset, num_devices)
    one = estimate(costs, group, operation, 2**30, size=size, stride=stride)
    return bytes_per_rank(operation, 2**30, size) / one.seconds / 1e9, one.provenance


@pytest.mark.parametrize(
    ("preset", "size", "stride", "low", "high"),
    [
        # The NVLink of a rack joins its trays.
        ("gb200-nvl72", 64, 1, 600, 750),
        ("gb200-nvl72", 8, 4, 700, 800),
        # Pairs of links of a full mesh: one of seven, three, all.
        ("mi300x", 2, 1, 40, 64),
        ("mi300x", 4, 1, 130, 192),
        ("mi300x", 8, 1, 300, 448),
        ("mi300x", 16, 1, 340, 370),
        ("gh200", 2, 1, 100, 150),
        ("gh200", 4, 1, 300, 450),
        # Dies of a package, packages of a node, NICs shared by two dies.
        ("mi250x-frontier", 2, 1, 100, 200),
        ("mi250x-frontier", 8, 1, 50, 80),
        ("mi250x-frontier", 8, 8, 10, 12.5),
        # A bridge for two cards, copies through the host for more.
        ("rtx-3090-nvlink", 2, 1, 40, 56),
        ("rtx-3090", 2, 1, 5, 12),
        ("rtx-3090-nvlink", 8, 1, 1, 2),
        # AWS: 400 Gb/s for eight devices.
        ("p4d", 16, 1, 70, 80),
        ("gtx-1650-ethernet", 4, 1, 0.1, 0.125),
        ("l40s", 2, 1, 18, 25),
        ("l40s", 8, 1, 15, 31.5),
    ],
)
def test_systems_reach_what_their_links_allow(
    preset: str, size: int, stride: int, low: float, high: float
) -> None:
    assert low < rate(preset, Collective.ALL_REDUCE, size=size, stride=stride)[0] < high


def test_copies_of_a_framework_are_no_part_of_a_gather() -> None:
    gather, provenance = rate("a100-sxm-40gb", Collective.ALL_GATHER, size=4)
    assert provenance is Provenance.INTERPOLATED
    assert gather == pytest.approx(rate("a100-sxm-80gb", Collective.ALL_GATHER, size=4)[0], rel=0.05)


def test_a_relative_behind_other_links_is_no_relative() -> None:
    bridged = rate("a100-pcie-80gb", Collective.ALL_GATHER, size=4, num_devices=64)
    assert bridged[0] < 31.5


def test_chips_of_a_torus_reduce_over_all_of_their_links() -> None:
    whole, plane, line = (
        rate("tpu-v4", Collective.ALL_REDUCE, size=size, num_devices=64)[0] for size in (64, 16, 4)
    )
    assert whole == pytest.approx(3 * line, rel=0.05)
    assert plane == pytest.approx(2 * line, rel=0.05)


def test_an_oversubscribed_spine_slows_what_crosses_it() -> None:
    inside, across_groups = (
        rate("mi250x-frontier", Collective.ALL_REDUCE, size=size, stride=stride, num_devices=4096)[0]
        for size, stride in ((8, 8), (4, 1024))
    )
    assert inside / across_groups == pytest.approx(1.75, rel=0.05)


def test_omni_path_is_filled_to_a_quarter_where_infiniband_is_filled() -> None:
    group = system_group("a100-sxm-80gb")
    network = group.levels[-1]
    seconds = [
        estimate(
            CollectiveCosts(replace(group, levels=(*group.levels[:-1], replace(network, name=name))), ()),
            group,
            Collective.ALL_REDUCE,
            2**32,
            size=64,
            stride=8,
        ).seconds
        for name in ("infiniband-hdr", "omni-path")
    ]
    assert 3.0 < seconds[1] / seconds[0] < 4.0


def test_few_published_sizes_tell_nothing_of_others() -> None:
    document = builtin_profile("h100-sxm/published").to_document()
    rows = [row for row in document["collectives"] if row["operation"] == "all_reduce"]
    inside = [row for row in rows if row["world_size"] == row["ranks_per_node"] == 8]
    one = next(row for row in inside if row["payload_bytes"] == 2**20)
    document["collectives"] = [one]
    group = system_group("h100-sxm")
    costs = CollectiveCosts(group, [Profile.from_document(document)])
    assert estimate(costs, group, Collective.ALL_REDUCE, 2**30, size=8).provenance is Provenance.DATASHEET


def test_a_ring_leaves_a_bridged_pair_through_one_card() -> None:
    (group,) = cluster_from_preset("a100-pcie-80gb", 4).node_groups
    one = estimate(CollectiveCosts(group, ()), group, Collective.ALL_REDUCE, 2**30, size=4)
    link = group.levels[1].bandwidth_bytes_per_second
    assert one.seconds == pytest.approx(2**30 * 2 * 3 / 4 / (0.6 * link), rel=0.1)


def test_what_waits_for_the_host_is_no_part_of_a_collective() -> None:
    costs, group = costs_of("a100-sxm-40gb", 4)
    rows = builtin_profile("a100-sxm-40gb/published").collectives
    waiting = [
        row.seconds
        for row in rows
        if (row.operation, row.payload_bytes, row.world_size) == (Collective.ALL_REDUCE, 2**20, 4)
    ]
    one = estimate(costs, group, Collective.ALL_REDUCE, 2**20, size=4)
    assert one.seconds < 0.6 * min(waiting)
    assert one.provenance is Provenance.INTERPOLATED


def test_directly_joined_devices_say_nothing_of_switched_ones() -> None:
    group = system_group("h100-sxm")
    costs = CollectiveCosts(group, [builtin_profile("gh200-96gb/published")])
    one = estimate(costs, group, Collective.ALL_REDUCE, 2**30, size=4)
    assert one.provenance is Provenance.DATASHEET


def test_curves_that_are_kept_answer_as_new_ones_and_for_their_own_cluster_alone() -> None:
    profiles = [builtin_profile("a100-sxm-80gb/published")]

    def seconds(costs: CollectiveCosts, group: NodeGroup) -> list[float]:
        sizes = (4, 8, group.num_devices)
        return [estimate(costs, group, Collective.ALL_REDUCE, 2**26, size=size).seconds for size in sizes]

    for devices in (16, 64, 16):
        group = cluster_from_preset("a100-sxm-80gb", devices).node_groups[0]
        new = seconds(CollectiveCosts(group, profiles), group)
        assert seconds(CollectiveCosts.opened(group, profiles), group) == new
        slow = replace(
            group, levels=tuple(replace(one, bandwidth_bytes_per_second=1e9) for one in group.levels)
        )
        assert seconds(CollectiveCosts.opened(slow, ()), slow) > new


def test_costs_that_are_corrected_leave_those_that_are_kept_alone() -> None:
    profiles = [builtin_profile("a100-sxm-80gb/published")]
    group = cluster_from_preset("a100-sxm-80gb", 16).node_groups[0]
    kept = CollectiveCosts.opened(group, profiles)
    before = estimate(kept, group, Collective.ALL_REDUCE, 2**26, size=8)
    halved = {Kind.COLLECTIVE_INSIDE: Correction(factor=0.5, informed=True)}
    other = kept.corrected(Corrections(by_kind=halved))
    after = estimate(other, group, Collective.ALL_REDUCE, 2**26, size=8)
    assert after.seconds == before.seconds / 2
    again = CollectiveCosts.opened(group, profiles)
    assert estimate(again, group, Collective.ALL_REDUCE, 2**26, size=8) == before
