"""Where the ranks of each mesh axis sit: how far apart in the numbering of devices."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import Final

import numpy as np

from planner.strategy import Mesh

EXPERT_AXES: Final = ("expert_parallel", "expert_tensor_parallel")
"""Axes that only experts have; they are numbered in an order of their own."""
Axes = tuple[tuple[int, int], ...]
"""How far apart the ranks of a group are along each of its axes, and how many, the inner one first."""


@lru_cache(maxsize=1 << 14)
def axis_stride(mesh: Mesh, axis: str) -> int:
    """Return how many device numbers lie between neighbours of an axis under its rank order."""
    if axis in EXPERT_AXES:
        return _stride(axis, mesh.expert_rank_order, _expert_degrees(mesh))
    return _stride(axis, mesh.rank_order, {other: int(getattr(mesh, other)) for other in mesh.rank_order})


def expert_replica_stride(mesh: Mesh) -> int:
    """Return the stride of the group that reduces the gradients of experts."""
    return _stride("data_parallel", mesh.expert_rank_order, _expert_degrees(mesh))


def _expert_degrees(mesh: Mesh) -> Mapping[str, int]:
    return {
        "expert_tensor_parallel": mesh.expert_tensor_parallel,
        "expert_parallel": mesh.expert_parallel,
        "data_parallel": mesh.expert_replicas,
        "pipeline_parallel": mesh.pipeline_parallel,
    }


def _stride(axis: str, order: Sequence[str], degrees: Mapping[str, int]) -> int:
    stride = 1
    for other in order:
        if other == axis:
            return stride
        stride *= degrees[other]
    raise ValueError(f"no axis {axis!r} in the rank order {tuple(order)}")


@lru_cache(maxsize=1 << 14)
def replica_axes(mesh: Mesh) -> Axes:
    """Return the axes of the group that reduces gradients: data and context parallel, the inner one first.

    They are one where nothing lies between them.
    """
    axes = sorted(
        (axis_stride(mesh, axis), int(getattr(mesh, axis)))
        for axis in ("context_parallel", "data_parallel")
        if getattr(mesh, axis) > 1
    )
    match axes:
        case [(inner, few), (outer, many)] if outer == inner * few:
            return ((inner, few * many),)
    return tuple(axes)


def expert_replica_axes(mesh: Mesh) -> Axes:
    """Return the one axis of the group that reduces the gradients of experts."""
    return ((expert_replica_stride(mesh), mesh.expert_replicas),)


def part_of(axes: Axes, *, size: int, step: int) -> Axes:
    """Return the axes of ``size`` neighbours among ranks of which only every ``step``-th counts."""
    found: list[tuple[int, int]] = []
    for stride, ranks in axes:
        if step >= ranks > 1:
            step = ceil(step / ranks)
            continue
        here = min(size, ceil(ranks / step))
        found.append((stride * step, here))
        size, step = ceil(size / here), 1
    if size > 1 and found:
        stride, here = found[-1]
        found[-1] = (stride, here * size)
    return tuple(axis for axis in found if axis[1] > 1)


def stage_devices(mesh: Mesh, stage: int) -> list[tuple[int, int, int]]:
    """Return the devices of a stage as (first, count, stride) runs of the numbering."""
    stride = axis_stride(mesh, "pipeline_parallel")
    block = stride * mesh.pipeline_parallel
    return [(first + stage * stride, stride, 1) for first in range(0, mesh.world_size, block)]


@lru_cache(maxsize=1 << 12)
def stages_of_nodes(mesh: Mesh, *, devices_per_node: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the stages that nodes hold devices of, with how many of each: one entry per kind of node."""
    stride, stages = axis_stride(mesh, "pipeline_parallel"), mesh.pipeline_parallel
    devices = np.arange(mesh.world_size)
    nodes = np.unique(devices // devices_per_node * stages + devices // stride % stages, return_counts=True)
    held: dict[int, list[tuple[int, int]]] = {}
    for key, count in zip(*(each.tolist() for each in nodes), strict=True):
        held.setdefault(key // stages, []).append((key % stages, count))
    return tuple(dict.fromkeys(map(tuple, held.values())))
