"""Where the ranks of each mesh axis sit: how far apart in the numbering of devices."""

from planner.strategy import Mesh


def axis_stride(mesh: Mesh, axis: str) -> int:
    """Return how many device numbers lie between neighbours of an axis under the rank order."""
    stride = 1
    for other in mesh.rank_order:
        if other == axis:
            return stride
        stride *= int(getattr(mesh, other))
    raise ValueError(f"no axis {axis!r} in the rank order {mesh.rank_order}")


def replica_stride(mesh: Mesh) -> int:
    """Return the stride of the group that reduces gradients: data and context parallel ranks."""
    axes = [axis for axis in ("context_parallel", "data_parallel") if getattr(mesh, axis) > 1]
    return min((axis_stride(mesh, axis) for axis in axes), default=1)


def stage_devices(mesh: Mesh, stage: int) -> list[tuple[int, int, int]]:
    """Return the devices of a stage as (first, count, stride) runs of the numbering."""
    stride = axis_stride(mesh, "pipeline_parallel")
    block = stride * mesh.pipeline_parallel
    return [(first + stage * stride, stride, 1) for first in range(0, mesh.world_size, block)]
