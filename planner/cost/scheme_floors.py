"""Which ways to split attention over context parallel can bound a mesh, for all micro-batch sizes at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.cost.any_scheme import AnyScheme
from planner.cost.geometry import axis_stride
from planner.cost.sweep import MANY_SAMPLES, SWEEPS, Floats, SweptCosts, SweptOperators
from planner.strategy import Mesh
from planner.workload.attention import split_otherwise

AXIS = "context_parallel"


@dataclass(kw_only=True, eq=False)
class SchemeFloors:
    """The ways of one cost model's meshes, over the micro-batch sizes of a search."""

    bounds: AnyScheme
    costs: SweptCosts
    _left: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict, init=False)

    def left(self, ways: Sequence[Mesh], count: int) -> tuple[Mesh, ...]:
        """Return the ways of which no other takes as little or less at each of the first ``count`` sizes.

        Attention alone is timed, with the kernels that a host launches for it; the layers around it are
        the same in all ways.
        """
        if len(ways) == 1:
            return tuple(ways)
        mesh = ways[0]
        key = (mesh.tensor_parallel, mesh.context_parallel, axis_stride(mesh, AXIS), len(ways), count)
        if key not in self._left:
            self._left[key] = _undominated([self._figures(way, count) for way in ways])
        return tuple(ways[number] for number in self._left[key])

    def _figures(self, mesh: Mesh, count: int) -> Floats:
        """Return seconds and kernels of both passes of every attention, [figure, size]."""
        model = self.bounds.model
        pairs = [
            cores
            for layers in model.members.values()
            for layer in layers
            for cores in zip(
                self.bounds.cores_of(layer, mesh, 1),
                self.bounds.cores_of(layer, mesh, MANY_SAMPLES),
                strict=True,
            )
        ]
        rows: list[Floats] = []
        for one, many in pairs:
            small = split_otherwise(one, model.cut(mesh, 1))
            large = split_otherwise(many, model.cut(mesh, MANY_SAMPLES))
            swept = SweptOperators(
                costs=self.costs, links=model.links(mesh), many={op.name: op for op in large}, count=count
            )
            clock = model.clock(mesh, swept, swept.collective, SWEEPS)
            for parts in clock.parts(small):
                rows += [SWEEPS.total(parts).seconds, np.array(float(len(parts)))]
        return np.array([np.broadcast_to(row, (count,)) for row in rows])


def _undominated(figures: Sequence[Floats]) -> tuple[int, ...]:
    """Return the ways of which no other is nowhere worse; of equal ones the first."""
    kept: list[int] = []
    for number, own in enumerate(figures):
        if any(np.all(figures[other] <= own) for other in kept):
            continue
        kept = [other for other in kept if not np.all(own <= figures[other])]
        kept.append(number)
    return tuple(kept)
