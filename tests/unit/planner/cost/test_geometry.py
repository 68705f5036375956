import pytest

from planner.cost.geometry import Axes, part_of, replica_axes
from planner.strategy import PIPELINE_INSIDE, Mesh

MESH = Mesh(tensor_parallel=2, context_parallel=2, pipeline_parallel=4, data_parallel=4)


def test_context_and_data_parallel_ranks_are_one_axis_unless_stages_lie_between() -> None:
    apart = Mesh(
        tensor_parallel=2,
        context_parallel=2,
        pipeline_parallel=4,
        data_parallel=4,
        rank_order=PIPELINE_INSIDE,
    )
    assert replica_axes(MESH) == ((2, 8),)
    assert replica_axes(apart) == ((2, 2), (16, 4))


def test_replicas_of_one_axis_are_that_axis() -> None:
    assert replica_axes(Mesh(context_parallel=4, pipeline_parallel=2)) == ((1, 4),)
    assert replica_axes(Mesh(tensor_parallel=8)) == ()


@pytest.mark.parametrize(
    ("axes", "size", "step", "part"),
    [
        (((2, 8),), 8, 1, ((2, 8),)),
        (((2, 8),), 4, 1, ((2, 4),)),
        (((2, 8),), 2, 4, ((8, 2),)),
        (((2, 2), (16, 4)), 2, 1, ((2, 2),)),
        (((2, 2), (16, 4)), 4, 1, ((2, 2), (16, 2))),
        (((2, 2), (16, 4)), 4, 2, ((16, 4),)),
        (((2, 2), (16, 4)), 2, 4, ((32, 2),)),
        (((1, 4), (16, 2)), 4, 2, ((2, 2), (16, 2))),
        ((), 1, 1, ()),
    ],
)
def test_a_part_of_the_replicas_takes_the_inner_axis_first(
    axes: Axes, size: int, step: int, part: Axes
) -> None:
    assert part_of(axes, size=size, step=step) == part
