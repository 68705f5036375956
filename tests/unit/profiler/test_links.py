from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import distributed

from planner.workload.operators import Collective
from profiler.backend import CpuBackend
from profiler.links import bus_bytes, collective_call, group_shape
from profiler.operands import InvalidShape
from profiler.processes import Alone, Failure, GroupShape, Place, Ranks, Together
from profiler.shapes import CollectiveShape

CPU = CpuBackend(processes_per_node=1)


def collective(operation: Collective, payload_bytes: int, *, world_size: int = 2) -> CollectiveShape:
    return CollectiveShape(operation=operation, world_size=world_size, payload_bytes=payload_bytes)


def test_payload_is_a_whole_number_of_elements() -> None:
    with pytest.raises(InvalidShape, match=r"payload_bytes \(6\) must be a multiple of 4"):
        collective_call(collective(Collective.ALL_REDUCE, 6), Alone(), CPU)


def test_buffer_that_cannot_fit_is_refused_before_it_is_made() -> None:
    with pytest.raises(MemoryError, match="needs"):
        collective_call(collective(Collective.ALL_REDUCE, 2**60), Alone(), CPU)


@pytest.mark.parametrize(
    "operation", [Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL]
)
def test_payload_is_a_whole_number_of_elements_for_each_rank(operation: Collective) -> None:
    with pytest.raises(InvalidShape, match=r"payload_bytes \(16\) must be a multiple of 12"):
        collective_call(collective(operation, 16, world_size=3), Alone(), CPU)


def test_messages_are_between_two() -> None:
    with pytest.raises(InvalidShape, match="send_receive is between 2 ranks, not 4"):
        collective_call(collective(Collective.SEND_RECEIVE, 16, world_size=4), Alone(), CPU)


TWO_NODES = Place(world_size=8, processes_per_node=4)


@pytest.mark.parametrize(
    ("size", "per_node", "groups", "members"),
    [
        (2, None, 1, [(0, 1)]),
        (4, 2, 1, [(0, 2, 4, 6)]),
        (2, 1, 2, [(0, 4), (1, 5)]),
        (8, None, 1, [tuple(range(8))]),
        (2, 2, 3, [(0, 1), (2, 3), (4, 5)]),
    ],
)
def test_ranks_of_a_group_are_spread_as_asked_for(
    size: int, per_node: int | None, groups: int, members: list[tuple[int, ...]]
) -> None:
    wanted = CollectiveShape(
        operation=Collective.ALL_REDUCE,
        world_size=size,
        payload_bytes=64,
        ranks_per_node=per_node,
        groups=groups,
    )
    shape = group_shape(wanted, TWO_NODES)

    assert isinstance(shape, GroupShape)
    assert [shape.members(number) for number in range(groups)] == members


@pytest.mark.parametrize(
    ("size", "per_node", "groups", "reason"),
    [
        (16, None, 1, "too_few_processes"),
        (8, None, 2, "too_few_processes"),
        (2, 1, 5, "too_few_processes"),
        (8, 8, 1, "invalid_shape"),
        (6, 4, 1, "invalid_shape"),
        (6, 3, 1, "invalid_shape"),
    ],
)
def test_groups_that_there_is_no_room_for_are_told(
    size: int, per_node: int | None, groups: int, reason: str
) -> None:
    wanted = CollectiveShape(
        operation=Collective.ALL_REDUCE,
        world_size=size,
        payload_bytes=64,
        ranks_per_node=per_node,
        groups=groups,
    )
    failure = group_shape(wanted, TWO_NODES)

    assert isinstance(failure, Failure)
    assert failure.reason == reason


@pytest.mark.parametrize(
    ("operation", "moved"),
    [
        (Collective.ALL_REDUCE, 1500),
        (Collective.ALL_GATHER, 750),
        (Collective.ALL_TO_ALL, 750),
        (Collective.BROADCAST, 1000),
    ],
)
def test_bytes_on_the_busiest_link(operation: Collective, moved: float) -> None:
    assert bus_bytes(collective(operation, 1000, world_size=4)) == moved


@pytest.mark.parametrize(("world_size", "moved"), [(2, 1000), (4, 1500), (8, 1750)])
def test_ring_moves_its_buffer_almost_twice(world_size: int, moved: float) -> None:
    assert bus_bytes(collective(Collective.ALL_REDUCE, 1000, world_size=world_size)) == moved


@pytest.fixture
def lone_group(tmp_path: Path) -> Iterator[Ranks]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield Together(size=1, members=(0,), has_this_process=True, collective_group=None, control_group=None)
    distributed.destroy_process_group()


@pytest.mark.parametrize("operation", [one for one in Collective if one is not Collective.SEND_RECEIVE])
def test_collectives_run_again_and_again(lone_group: Ranks, operation: Collective) -> None:
    call = collective_call(collective(operation, 64, world_size=1), lone_group, CPU)

    for _ in range(3):
        call()
