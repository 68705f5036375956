from dataclasses import replace

import pytest

from planner.cluster_presets import cluster_from_preset
from planner.cost.group_shape import group_shape, spread_shape

(GROUP,) = cluster_from_preset("h100-sxm", 64).node_groups
(NODE,) = cluster_from_preset("h100-sxm", 4).node_groups


@pytest.mark.parametrize(
    ("size", "stride", "per_node", "per_level"),
    [
        (1, 1, 1, (1, 1)),
        (8, 1, 8, (8, 8)),
        (16, 1, 8, (8, 16)),
        (4, 2, 4, (4, 4)),
        (8, 2, 4, (4, 8)),
        (8, 8, 1, (1, 8)),
        (4, 16, 1, (1, 4)),
        (2, 4, 2, (2, 2)),
    ],
)
def test_ranks_a_stride_apart_share_nodes(
    size: int, stride: int, per_node: int, per_level: tuple[int, ...]
) -> None:
    shape = group_shape(GROUP, size=size, stride=stride)
    assert (shape.size, shape.ranks_per_node, shape.ranks_per_level) == (size, per_node, per_level)


@pytest.mark.parametrize(("size", "stride"), [(65, 1), (9, 8), (0, 1), (2, 0)])
def test_ranks_that_do_not_fit_are_refused(size: int, stride: int) -> None:
    with pytest.raises(ValueError, match="but h100-sxm has 64"):
        group_shape(GROUP, size=size, stride=stride)


def test_ranks_that_no_link_joins_are_refused() -> None:
    torn = replace(GROUP, levels=GROUP.levels[:1])
    assert group_shape(torn, size=8).size == 8
    with pytest.raises(ValueError, match="no level of h100-sxm joins 16 ranks"):
        group_shape(torn, size=16)


def test_a_part_of_a_node_has_one_level() -> None:
    assert group_shape(NODE, size=4, stride=1).ranks_per_level == (4,)


def test_all_devices_talk_unless_it_is_said_how_many_do() -> None:
    assert group_shape(GROUP, size=8).talking == GROUP.num_devices
    assert group_shape(GROUP, size=2, stride=32, talking=4).talking == 4


@pytest.mark.parametrize(
    ("axes", "per_node", "per_level"),
    [
        (((1, 2), (16, 4)), 2, (2, 8)),
        (((2, 4), (16, 2)), 4, (4, 8)),
        (((2, 2), (8, 4)), 2, (2, 8)),
        (((1, 4), (8, 8)), 4, (4, 32)),
    ],
)
def test_ranks_along_two_axes_share_nodes(
    axes: tuple[tuple[int, int], ...], per_node: int, per_level: tuple[int, ...]
) -> None:
    shape = spread_shape(GROUP, axes)
    assert (shape.ranks_per_node, shape.ranks_per_level) == (per_node, per_level)
    assert shape.size == per_level[-1]


def test_ranks_along_axes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 ranks 1 apart x 5 ranks 16 apart span 66 devices"):
        spread_shape(GROUP, ((1, 2), (16, 5)))
