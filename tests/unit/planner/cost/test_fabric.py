import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cluster import Level, Topology
from planner.cost.fabric import SWITCHED, Fabric, exchanged_bytes
from planner.errors import InvalidRequest
from planner.workload.operators import Collective


def fabric(topology: Topology, *extents: int) -> Fabric:
    return Fabric(topology=topology, extents=extents)


def level(topology: Topology, *, devices: int, shape: tuple[int, ...] | None = None) -> Level:
    return Level(
        name="links",
        devices=devices,
        bandwidth_bytes_per_second=1e9,
        latency_seconds=1e-6,
        topology=topology,
        shape=shape,
    )


TORUS = fabric(Topology.TORUS, 4, 4, 4)
GRID = fabric(Topology.MESH, 4, 4)
FULL = fabric(Topology.MESH, 8)


@given(ranks=st.integers(2, 4096), stride=st.integers(1, 64))
def test_behind_a_switch_everybody_has_the_whole_bandwidth(ranks: int, stride: int) -> None:
    paths = SWITCHED.paths(ranks, stride=stride)
    assert paths.gather == paths.message == 1.0
    assert paths.exchange == pytest.approx((ranks - 1) / ranks)
    assert paths.steps is None


@pytest.mark.parametrize(("ranks", "gather"), [(2, 7.0), (4, 7 / 3), (8, 1.0)])
def test_in_a_full_mesh_a_group_uses_the_links_between_its_ranks(ranks: int, gather: float) -> None:
    paths = FULL.paths(ranks)
    assert paths.gather == pytest.approx(gather)
    assert paths.message == 7.0
    assert paths.exchange == pytest.approx(7 / ranks)
    assert paths.steps == 1


@pytest.mark.parametrize(
    ("ranks", "stride", "gather"),
    [
        # One link of six along a line of two; both ways around a ring of four.
        (2, 1, 6.0),
        (4, 1, 3.0),
        (4, 4, 3.0),
        (4, 16, 3.0),
        # A plane of two closed dimensions, then all three.
        (16, 1, 1.5),
        (64, 1, 1.0),
        # Every second device of a ring shares its links with the others.
        (2, 2, 6.0),
    ],
)
def test_in_a_torus_a_group_uses_the_dimensions_it_spans(ranks: int, stride: int, gather: float) -> None:
    assert TORUS.paths(ranks, stride=stride).gather == pytest.approx(gather)


def test_a_line_of_a_grid_does_not_close() -> None:
    assert GRID.paths(4).gather == pytest.approx(4.0)
    assert GRID.paths(16).gather == pytest.approx(2.0)
    assert fabric(Topology.RING, 8).paths(8).gather == pytest.approx(1.0)


def test_an_exchange_in_a_ring_is_bound_by_its_middle() -> None:
    # Half of the payload of half of the ranks crosses two links of half a device's bandwidth each.
    assert fabric(Topology.RING, 8).paths(8).exchange == pytest.approx(8 / 8 * 2)
    assert TORUS.paths(64).exchange == pytest.approx(6 * 4 / 8)


def test_a_message_takes_one_link() -> None:
    assert TORUS.paths(2, stride=1).message == pytest.approx(6.0)
    assert TORUS.paths(4).message == pytest.approx(6.0)


@pytest.mark.parametrize("links", [TORUS, GRID, FULL, fabric(Topology.RING, 16)])
@given(ranks=st.integers(2, 16), stride=st.sampled_from([1, 2, 4]))
def test_direct_links_never_give_more_than_a_switch(links: Fabric, ranks: int, stride: int) -> None:
    paths = links.paths(ranks, stride=stride)
    assert paths.gather >= 1.0 - 1e-9
    assert paths.message >= 1.0
    assert math.isfinite(paths.exchange)
    assert paths.exchange > 0


@given(ranks=st.integers(2, 64))
def test_a_larger_group_is_no_faster_at_equal_bytes_per_rank(ranks: int) -> None:
    """Of a full mesh: the shard of each rank goes to every other one over a link of its own."""
    if ranks < 8:
        seconds = [
            exchanged_bytes(Collective.ALL_GATHER, float(count), FULL.paths(count), ranks=count)
            for count in (ranks, ranks + 1)
        ]
        assert seconds[1] >= seconds[0] * (1 - 1e-9)


def test_domains_are_joined_rather_than_devices() -> None:
    joined = Fabric.of(level(Topology.MESH, devices=8), devices_below=2)
    assert joined.extents == (4,)
    assert Fabric.of(level(Topology.TORUS, devices=64, shape=(4, 4, 4)), devices_below=1) == TORUS


def test_a_shape_that_does_not_hold_the_devices_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="4x4 of links holds 16 devices, not 64"):
        Fabric.of(level(Topology.TORUS, devices=64, shape=(4, 4)), devices_below=1)
