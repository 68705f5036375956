"""Where the ranks of one group sit: how many share a node and each level of links."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from planner.cluster import NodeGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupShape:
    """``size`` ranks, each ``stride`` devices after the one before.

    ``ranks_per_level`` says how many of them share one domain of each level, innermost first; the
    last is ``size``. Groups of one mesh axis all talk at once, so no rank finds silent neighbours;
    where only some devices talk, ``talking`` counts the consecutive ones that do.
    """

    size: int
    stride: int
    ranks_per_node: int
    ranks_per_level: tuple[int, ...]
    talking: int


def group_shape(group: NodeGroup, *, size: int, stride: int = 1, talking: int | None = None) -> GroupShape:
    """Return the shape of ``size`` ranks ``stride`` apart in the numbering of a node group.

    ``talking`` consecutive devices talk at once; None means all.

    Raises ValueError when they do not fit in the group or in its outermost level.
    """
    if size < 1 or stride < 1:
        raise ValueError(
            f"{size} ranks {stride} apart are no group, but {group.name} has {group.num_devices}"
        )
    return spread_shape(group, ((stride, size),), talking=talking)


def spread_shape(
    group: NodeGroup, axes: Sequence[tuple[int, int]], *, talking: int | None = None
) -> GroupShape:
    """Return the shape of ranks along several axes, each so far apart and so many, the inner one first.

    Raises ValueError when they do not fit in the group or in its outermost level.
    """
    size = prod(ranks for _, ranks in axes)
    span = sum((ranks - 1) * stride for stride, ranks in axes) + 1
    named = " x ".join(f"{ranks} ranks {stride} apart" for stride, ranks in axes)
    if span > group.num_devices:
        raise ValueError(f"{named} span {span} devices, but {group.name} has {group.num_devices}")

    def within(devices: int) -> int:
        return prod(_ranks_within(devices, size=ranks, stride=stride) for stride, ranks in axes)

    # A level that joins the whole group joins any ranks in it, aligned or not.
    per_level = tuple(
        size if level.devices >= group.num_devices else within(level.devices) for level in group.levels
    )
    if size > 1 and (not per_level or per_level[-1] < size):
        raise ValueError(f"no level of {group.name} joins {named}")
    return GroupShape(
        size=size,
        stride=axes[0][0],
        ranks_per_node=within(group.devices_per_node),
        ranks_per_level=per_level,
        talking=group.num_devices if talking is None else talking,
    )


def _ranks_within(devices: int, *, size: int, stride: int) -> int:
    return min(size, max(1, devices // stride))
