"""Laws of collectives over levels that nest in any way: switches, rings, grids, meshes and tori."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.cluster import NodeGroup, Topology
from planner.cost.collective import CollectiveCosts, group_shape
from planner.workload.operators import Collective
from tests.unit.planner.cost.node_groups import node_groups

TOLERANCE = 1 - 1e-9
operations = st.sampled_from(Collective)
payloads = st.floats(1.0, 1e10)
factors = st.floats(1.0, 100.0)


@st.composite
def ranks(draw: st.DrawFn, group: NodeGroup) -> tuple[int, int]:
    """Draw how many ranks of a group talk, and how far apart they are."""
    size = draw(st.integers(2, group.num_devices))
    return size, draw(st.integers(1, (group.num_devices - 1) // (size - 1)))


def seconds(group: NodeGroup, operation: Collective, payload: float, *, size: int, stride: int = 1) -> float:
    shape = group_shape(group, size=size, stride=stride)
    return CollectiveCosts(group, ()).seconds(operation, payload_bytes=payload, shape=shape).seconds


@given(group=node_groups(), operation=operations, payload=payloads, factor=factors, data=st.data())
def test_more_bytes_are_never_faster(
    group: NodeGroup, operation: Collective, payload: float, factor: float, data: st.DataObject
) -> None:
    size, stride = data.draw(ranks(group))
    taken = [seconds(group, operation, payload * more, size=size, stride=stride) for more in (1.0, factor)]
    assert taken[1] >= taken[0] * TOLERANCE > 0


@given(group=node_groups(), operation=operations, payload=payloads, factor=factors, data=st.data())
def test_a_better_level_is_never_slower(
    group: NodeGroup, operation: Collective, payload: float, factor: float, data: st.DataObject
) -> None:
    size, stride = data.draw(ranks(group))
    number = data.draw(st.integers(0, len(group.levels) - 1))
    usual = group.levels[number]
    taken = seconds(group, operation, payload, size=size, stride=stride)
    for better in (
        replace(usual, bandwidth_bytes_per_second=usual.bandwidth_bytes_per_second * factor),
        replace(usual, latency_seconds=usual.latency_seconds / factor),
        replace(usual, oversubscription=1.0),
    ):
        levels = (*group.levels[:number], better, *group.levels[number + 1 :])
        mended = replace(group, levels=levels)
        assert seconds(mended, operation, payload, size=size, stride=stride) * TOLERANCE <= taken


@given(
    group=node_groups(topologies=(Topology.SWITCH,)), operation=operations, payload=payloads, data=st.data()
)
def test_behind_switches_more_neighbours_are_never_faster(
    group: NodeGroup, operation: Collective, payload: float, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, group.num_devices))
    more = data.draw(st.integers(size, group.num_devices))
    fewer_seconds, more_seconds = (seconds(group, operation, payload, size=count) for count in (size, more))
    assert more_seconds >= fewer_seconds * TOLERANCE
