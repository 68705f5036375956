"""The least memory that any plan of a space needs: what is missing when nothing fits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from planner.cost.model import CostModel
from planner.cost.pipeline import PipelineProblem
from planner.search.capacity import fits_at_all, in_order, most_layers
from planner.search.fewer_devices import fewer_degrees
from planner.search.meshes import meshes, variants
from planner.search.space import Space
from planner.strategy import Layout
from planner.units import Bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class LeastNeed:
    """The most frugal layout: the stage that needs most even so, and how much that is."""

    layout: Layout
    stage: int
    needed_bytes: Bytes
    available_bytes: Bytes


def least_need(space: Space, model: CostModel) -> LeastNeed | None:
    """Return the layout whose fullest device needs least, None when no layout is legal.

    It is one on all devices, or on as many as any legal layout uses.

    The smallest micro-batch, most sharding and one chunk per stage suffice: larger ones, wider
    shares and interleaving keep more, never less.
    """
    for devices in _numbers_of_devices(space):
        layouts = _frugal_layouts(replace(space, num_devices=devices))
        needs = (layout_need(layout, model.problem(layout)) for layout in layouts)
        least = min(needs, key=lambda need: need.needed_bytes, default=None)
        if least is not None:
            return least
    return None


def _numbers_of_devices(space: Space) -> Iterator[int]:
    """Yield all devices, then the fewer ones of which degrees have a product, most first."""
    yield space.num_devices
    fewer = fewer_degrees(space, least=1, most=space.num_devices - 1)
    yield from sorted({prod(degrees) for degrees in fewer}, reverse=True)


def _frugal_layouts(space: Space) -> Iterator[Layout]:
    spare = 2 if space.setting.framework.empty_ends else 0
    for mesh, batches in groupby(meshes(space), key=lambda entry: entry[0]):
        if mesh.pipeline_parallel > space.setting.num_layers + spare:
            continue
        _, batch = next(batches)
        layouts = list(variants(space, mesh, batch))
        most = max((layout.sharding.zero_stage for layout in layouts), default=None)
        yield from (layout for layout in layouts if layout.sharding.zero_stage == most)


def layout_need(layout: Layout, problem: PipelineProblem) -> LeastNeed:
    """Return the least limit under which a layout's stages can hold all layers, by bisection.

    Exact for one chunk per stage.

    The stage named is the one that can hold the fewest layers even then.
    """
    low, high = -1, max(problem.limit_bytes, 1)
    while not fits_at_all(replace(problem, limit_bytes=high)):
        low, high = high, 2 * high
    while low + 1 < high:
        middle = (low + high) // 2
        if fits_at_all(replace(problem, limit_bytes=middle)):
            high = middle
        else:
            low = middle
    filled = (most_layers if problem.is_uniform else in_order)(replace(problem, limit_bytes=high))
    assert filled is not None
    return LeastNeed(
        layout=layout,
        stage=filled.index(min(filled)),
        needed_bytes=float(high),
        available_bytes=float(problem.limit_bytes),
    )
