"""What layouts share: layers cut for a mesh with a micro-batch size, and the order of their passes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from planner.cost.geometry import axis_stride
from planner.cost.layer import LayerPasses
from planner.cost.mesh_links import MeshLinks
from planner.cost.schedules import PipelineShape
from planner.cost.tally import Tally
from planner.setting import Setting
from planner.strategy import Layout, Mesh, ScheduleName
from planner.units import Bytes
from planner.workload.layers import Cut, Layer

Member = int | Literal["first", "last"]
"""A class of counted layers by number, or an end of the chain."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ground:
    """What all layouts of a mesh with a micro-batch size share: cut layers and links."""

    links: MeshLinks
    cut: Cut
    members: Mapping[Member, tuple[LayerPasses[Tally], ...]]
    tied_parameters: Mapping[Member, int]
    cut_key: tuple[int, ...]
    transfer: Tally
    barrier: Tally
    tied: Tally
    activation_bytes: Bytes
    """What one rank hands to the next stage."""
    scatters: bool
    """Whether each tensor-parallel rank sends its share of that alone."""
    tied_bytes: Bytes
    """Gradients that the first and the last stage add up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """What stages send each other: an activation to the next one, gradients of what both ends hold."""

    transfer: Tally
    tied: Tally


def members_of(setting: Setting) -> dict[Member, tuple[Layer, ...]]:
    """Return the layers of every class and of both ends of the chain."""
    body = setting.body
    return {"first": body.first, **dict(enumerate(body.classes)), "last": body.last}


def pipeline_shape(layout: Layout) -> PipelineShape:
    """Return what fixes the order of passes in a layout."""
    name = layout.schedule.name
    return PipelineShape(
        schedule=name,
        num_stages=layout.mesh.pipeline_parallel,
        virtual_stages=layout.schedule.virtual_stages,
        num_micro_batches=layout.batch.num_micro_batches,
        group_size=layout.schedule.interleave_group_size if name is ScheduleName.INTERLEAVED else None,
    )


def cut_key(mesh: Mesh, micro_batch_size: int) -> tuple[int, ...]:
    """Return what decides how layers are cut and where their ranks sit: equal keys cost the same."""
    return (
        *dense_cut_key(mesh),
        mesh.expert_parallel,
        mesh.expert_tensor_parallel,
        axis_stride(mesh, "expert_parallel"),
        axis_stride(mesh, "expert_tensor_parallel"),
        micro_batch_size,
    )


def dense_cut_key(mesh: Mesh) -> tuple[int, ...]:
    """Return what decides how layers without experts are cut, and where their ranks sit."""
    return (
        mesh.tensor_parallel,
        mesh.sequence_parallel,
        mesh.context_parallel,
        mesh.head_exchange,
        mesh.gathers_keys,
        axis_stride(mesh, "tensor_parallel"),
        axis_stride(mesh, "context_parallel"),
        # Launches may take longer in a pipeline.
        mesh.pipeline_parallel > 1,
    )
