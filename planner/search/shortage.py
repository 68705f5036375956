"""The least memory that any plan of a space needs: what is missing when nothing fits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from planner.cost.model import CostModel
from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.search.meshes import Space, meshes, variants
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

    The smallest micro-batch, most sharding and one chunk per stage suffice: larger ones, wider
    shares and interleaving keep more, never less.
    """
    needs = (_need(layout, model.problem(layout)) for layout in _frugal_layouts(space))
    return min(needs, key=lambda need: need.needed_bytes, default=None)


def _frugal_layouts(space: Space) -> Iterator[Layout]:
    spare = 2 if space.setting.framework.empty_ends else 0
    for mesh, batches in groupby(meshes(space), key=lambda entry: entry[0]):
        if mesh.pipeline_parallel > space.setting.num_layers + spare:
            continue
        _, batch = next(batches)
        layouts = list(variants(space, mesh, batch))
        most = max((layout.sharding.zero_stage for layout in layouts), default=None)
        yield from (layout for layout in layouts if layout.sharding.zero_stage == most)


def _need(layout: Layout, problem: PipelineProblem) -> LeastNeed:
    """Return the least limit under which the stages together can hold all layers.

    A stage's peak grows by the same bytes with every layer that it already holds one of, so the
    limit is found by bisection over whole bytes.
    """
    stages = [_stage_line(problem, stage) for stage in range(problem.shape.num_stages)]
    low, high = 0, max(line.peak(problem.num_layers) for line in stages)
    while low < high:
        middle = (low + high) // 2
        if _holds(stages, middle, problem.num_layers):
            high = middle
        else:
            low = middle + 1
    fullest = max(range(len(stages)), key=lambda stage: stages[stage].peak(stages[stage].fewest))
    return LeastNeed(
        layout=layout,
        stage=fullest,
        needed_bytes=float(low),
        available_bytes=float(problem.limit_bytes),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _StageLine:
    """A stage's peak in bytes by its layers: ``empty`` without any, ``one`` with one, then a line."""

    fewest: int
    empty: int
    one: int
    slope: int

    def peak(self, layers: int) -> int:
        return self.one + (layers - 1) * self.slope if layers else self.empty

    def most_layers(self, limit: int) -> int:
        """Return how many layers fit under a limit, -1 when not even the fewest do."""
        if self.peak(self.fewest) > limit:
            return -1
        if self.one > limit:
            return 0
        return 1 + (limit - self.one) // max(self.slope, 1)


def _holds(stages: Sequence[_StageLine], limit: int, num_layers: int) -> bool:
    most = [line.most_layers(limit) for line in stages]
    return min(most) >= 0 and sum(most) >= num_layers


def _stage_line(problem: PipelineProblem, stage: int) -> _StageLine:
    empty, one, two = (_frugal_peak(problem, stage, layers) for layers in range(3))
    return _StageLine(fewest=problem.minimum_layers(stage), empty=empty, one=one, slope=two - one)


def _frugal_peak(problem: PipelineProblem, stage: int, layers: int) -> int:
    """Return the peak of a stage that runs so many layers, all by the option that needs least."""
    peaks = []
    for option in range(len(problem.options)):
        counts = tuple(layers if number == option else 0 for number in range(len(problem.options)))
        costs = chunk_costs(problem, (counts,) * problem.shape.num_stages)
        peaks.append(stage_peak_bytes(problem, costs, stage))
    return min(peaks)
