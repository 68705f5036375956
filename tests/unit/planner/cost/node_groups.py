"""Random node groups: levels that nest, each joined in any way."""

from math import prod

from hypothesis import strategies as st

from planner.cluster import Level, NodeGroup, Topology
from tests.unit.planner.cost.machines import bench_device

NAMES = ("nvlink", "pcie4", "ici", "rail", "spine")


@st.composite
def levels(draw: st.DrawFn, *, devices_below: int, topologies: tuple[Topology, ...]) -> Level:
    """Draw a level that joins up to 16 domains."""
    extents = draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=2))
    topology = draw(st.sampled_from(topologies))
    is_grid = topology is Topology.MESH and draw(st.booleans())
    return Level(
        name=draw(st.sampled_from(NAMES)),
        devices=devices_below * prod(extents),
        bandwidth_bytes_per_second=draw(st.floats(1e8, 1e12)),
        latency_seconds=draw(st.floats(0, 1e-4)),
        in_network_reduction=draw(st.booleans()),
        oversubscription=draw(st.floats(1, 8)),
        devices_per_link=draw(st.sampled_from([1, 2, 4])),
        topology=topology,
        shape=tuple(extents) if is_grid or topology is Topology.TORUS else None,
    )


@st.composite
def node_groups(draw: st.DrawFn, *, topologies: tuple[Topology, ...] = tuple(Topology)) -> NodeGroup:
    """Draw a group of up to four levels whose nodes are the domains of any of them."""
    nested: list[Level] = []
    for _ in range(draw(st.integers(1, 4))):
        below = nested[-1].devices if nested else 1
        nested.append(draw(levels(devices_below=below, topologies=topologies)))
    per_node = draw(st.sampled_from(nested)).devices
    return NodeGroup(
        name="nested",
        num_nodes=nested[-1].devices // per_node,
        devices_per_node=per_node,
        device=bench_device(),
        levels=tuple(nested),
    )
