"""The least memory that any plan of a space needs: what is missing when nothing fits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from planner.cost.model import CostModel
from planner.cost.pipeline import PipelineProblem
from planner.limits import STATES
from planner.search.capacity import fits_at_all, in_order, most_layers
from planner.search.fewer_devices import fewer_degrees
from planner.search.meshes import Choices, meshes
from planner.search.offloading import Chain
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """The most frugal layout, and that of those that fit the devices which leaves hosts the least short.

    ``device`` is None when no layout is legal; ``host`` where hosts are no help or large enough.
    """

    device: LeastNeed | None
    host_bytes: Bytes | None


def least_needs(space: Space, model: CostModel) -> Needs:
    """Return the layout whose fullest device needs least; where hosts are too small for it, what those need.

    It is one on all devices, or on as many as any legal layout uses.

    The smallest micro-batch, most sharding and one chunk per stage suffice: larger ones, wider
    shares and interleaving keep more, never less.
    """
    for devices in _numbers_of_devices(space):
        needs = _least_needs(replace(space, num_devices=devices), model)
        if needs.device is not None:
            return needs
    return Needs(device=None, host_bytes=None)


def _least_needs(space: Space, model: CostModel) -> Needs:
    device: LeastNeed | None = None
    host_bytes: Bytes | None = None
    for layouts in _frugal_layouts(space):
        for layout in layouts:
            problem = model.problem(layout)
            if not problem.hosts_overflow:
                if device is None or fits_at_all(replace(problem, limit_bytes=int(device.needed_bytes) - 1)):
                    device = layout_need(layout, problem)
                break
            if fits_at_all(problem):
                needed = model.host_bytes_per_node(layout)
                host_bytes = needed if host_bytes is None else min(host_bytes, needed)
    return Needs(device=device, host_bytes=host_bytes)


def _numbers_of_devices(space: Space) -> Iterator[int]:
    """Yield all devices, then the fewer ones of which degrees have a product, most first."""
    yield space.num_devices
    fewer = fewer_degrees(space, least=1, most=space.num_devices - 1)
    yield from sorted({prod(degrees) for degrees in fewer}, reverse=True)


def _frugal_layouts(space: Space) -> Iterator[tuple[Layout, ...]]:
    """Yield layouts of one chain each, those first that leave most room on the device."""
    spare = 2 if space.setting.framework.empty_ends else 0
    choices = Choices(space)
    for mesh, batches in groupby(meshes(space), key=lambda entry: entry[0]):
        if mesh.pipeline_parallel > space.setting.num_layers + spare:
            continue
        _, batch = next(batches)
        chains = choices.chains(mesh, batch)
        for offloads in (False, True):
            own = [chain for chain in chains if chain[-1].on(mesh, batch).offloads is offloads]
            most = max((_shared(chain) for chain in own), default=None)
            for chain in own:
                if _shared(chain) == most:
                    yield tuple(choice.on(mesh, batch) for choice in reversed(chain))


def _shared(chain: Chain) -> tuple[int, ...]:
    """Return how much the replicas of a chain share, in numbers that are larger for more."""
    sharding = chain[-1].sharding
    return (sharding.zero_stage, *(getattr(sharding, state) for state in STATES))


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
