import pytest

from planner.workload.operators import Collective
from profiler.backend import CpuBackend
from profiler.kernels import InvalidShape, Unsupported
from profiler.links import bus_bytes, collective_call
from profiler.processes import Alone
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


def test_other_collectives_are_unsupported() -> None:
    with pytest.raises(Unsupported, match="all_to_all is not measured yet"):
        collective_call(collective(Collective.ALL_TO_ALL, 4), Alone(), CPU)


@pytest.mark.parametrize(("world_size", "moved"), [(2, 1000), (4, 1500), (8, 1750)])
def test_ring_moves_its_buffer_almost_twice(world_size: int, moved: float) -> None:
    assert bus_bytes(collective(Collective.ALL_REDUCE, 1000, world_size=world_size)) == moved
