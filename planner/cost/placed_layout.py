"""A layout priced where its stages sit: all on one node group, or on several that are joined.

Stages on a group cost what that group's devices and links make of them: its kernels, its network between
replicas, its memory. An activation between stages of two groups takes the link that joins them. All stages
wait for the slowest group's gradient norm, and every gather and reduction ends with the slowest group's
bucket: what a faster group's bucket would save is left out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from planner.cost.group_bridge import GroupBridge
from planner.cost.layout_costs import LayoutCosts
from planner.cost.mesh_links import NORM_BYTES
from planner.cost.model import CostModel
from planner.cost.pipeline import Assignment, ChunkCosts, PipelineProblem, chunk_costs, costs_of_chunk
from planner.cost.tally import NOTHING, Cause, Tally
from planner.errors import InvalidRequest
from planner.legality import Setting
from planner.profile import Profile
from planner.strategy import Layout


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedStage:
    """What one stage costs on its node group; ``to_next`` and ``to_previous`` are an activation's ways."""

    model: CostModel
    problem: PipelineProblem
    """The problem of a pipeline that sits on this group as a whole."""
    costs: LayoutCosts
    to_next: Tally
    to_previous: Tally


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedLayout:
    """What the replay plays and the prediction reads: one problem, and the figures of every stage.

    ``barrier`` is what every stage pays between two steps.
    """

    problem: PipelineProblem
    stages: tuple[PlacedStage, ...]
    barrier: Tally

    def chunk_costs(self, assignment: Assignment) -> tuple[ChunkCosts, ...]:
        """Return the costs of every chunk on the group of its stage, in chunk order."""
        if all(stage.problem is self.problem for stage in self.stages):
            return chunk_costs(self.problem, assignment)
        return tuple(
            costs_of_chunk(self.stages[self.problem.shape.stage_of(chunk)].problem, chunk, counts)
            for chunk, counts in enumerate(assignment)
        )


def place(model: CostModel, layout: Layout) -> PlacedLayout:
    """Return a layout with all its stages on one node group."""
    problem, costs = model.problem(layout), model.costs(layout)
    stage = PlacedStage(
        model=model, problem=problem, costs=costs, to_next=costs.transfer, to_previous=costs.transfer
    )
    return PlacedLayout(
        problem=problem, stages=(stage,) * layout.mesh.pipeline_parallel, barrier=costs.barrier
    )


def place_on_groups(
    layout: Layout,
    node_groups: Sequence[str],
    *,
    setting: Setting,
    profiles: Sequence[Profile],
    memory_fraction: float,
) -> PlacedLayout:
    """Return a layout with each stage on the node group that is named for it.

    Raises InvalidRequest where nothing joins two groups that have to talk.
    """
    models = {
        name: CostModel(
            setting=setting,
            group=setting.cluster.group(name),
            profiles=profiles,
            memory_fraction=memory_fraction,
            num_stages=count,
        )
        for name, count in Counter(node_groups).items()
    }
    if len(models) == 1:
        return place(models[node_groups[0]], layout)
    return _JoinedGroups(layout=layout, node_groups=tuple(node_groups), models=models).placed()


@dataclass(frozen=True, kw_only=True, slots=True)
class _JoinedGroups:
    """Several node groups under one layout; ``models`` holds that of each group by name."""

    layout: Layout
    node_groups: tuple[str, ...]
    models: dict[str, CostModel]

    def placed(self) -> PlacedLayout:
        problems = {name: model.problem(self.layout) for name, model in self.models.items()}
        costs = {name: model.costs(self.layout) for name, model in self.models.items()}
        boundaries = self._boundaries(costs)
        stages = tuple(
            PlacedStage(
                model=self.models[name],
                problem=problems[name],
                costs=costs[name],
                to_next=boundaries[stage],
                to_previous=boundaries[stage - 1],
            )
            for stage, name in enumerate(self.node_groups)
        )
        barrier = self._barrier(costs)
        transfers = [boundary.nanoseconds for boundary in boundaries]
        problem = replace(
            stages[0].problem,
            transfer_ns=max(transfers),
            boundaries_ns=tuple(transfers),
            gather_bucket_ns=max(problem.gather_bucket_ns for problem in problems.values()),
            reduce_bucket_ns=max(problem.reduce_bucket_ns for problem in problems.values()),
            barrier_ns=barrier.nanoseconds,
            tied_ns=self._tied(costs).nanoseconds,
        )
        return PlacedLayout(problem=problem, stages=stages, barrier=barrier)

    def _boundaries(self, costs: dict[str, LayoutCosts]) -> list[Tally]:
        """Return an activation's way from each stage to the one after it, from the last to the first.

        It is the slower one of both directions. One chunk per stage sends nothing from the last to the first.
        """
        schedule = self.layout.schedule
        around = schedule.virtual_stages > 1 and not schedule.name.folds
        following = (*self.node_groups[1:], self.node_groups[0])
        ways = []
        for stage, (here, there) in enumerate(zip(self.node_groups, following, strict=True)):
            if here == there:
                ways.append(costs[here].transfer)
            elif stage + 1 < len(following) or around:
                ways.append(self._crossing(here, there))
            else:
                ways.append(NOTHING)
        return ways

    def _crossing(self, here: str, there: str) -> Tally:
        bridge = self._bridge(here, there)
        mesh, size = self.layout.mesh, self.layout.batch.micro_batch_size
        arrivals = [self.models[name].from_other_group(mesh, size, bridge) for name in (here, there)]
        return max(arrivals, key=attrgetter("seconds"))

    def _barrier(self, costs: dict[str, LayoutCosts]) -> Tally:
        """Return the slowest group's barrier, and what the gradient norm takes from group to group."""
        slowest = max((cost.barrier for cost in costs.values()), key=attrgetter("seconds"))
        crossed = {frozenset(pair) for pair in pairwise(self.node_groups) if len(set(pair)) > 1}
        norms = [
            self._bridge(*sorted(pair)).all_reduce(NORM_BYTES, groups=len(costs), cause=Cause.OVERHEAD)
            for pair in crossed
        ]
        return slowest + max(norms, key=attrgetter("seconds"))

    def _tied(self, costs: dict[str, LayoutCosts]) -> Tally:
        """Return the sum of a tied embedding's gradients over the first and the last stage."""
        first, last = self.node_groups[0], self.node_groups[-1]
        if first == last or self.layout.schedule.name.folds:
            return costs[first].tied
        mesh, size = self.layout.mesh, self.layout.batch.micro_batch_size
        tied_bytes = self.models[first].ground(mesh, size).tied_bytes
        return self._bridge(first, last).all_reduce(tied_bytes) if tied_bytes else NOTHING

    def _bridge(self, here: str, there: str) -> GroupBridge:
        link = self.models[here].setting.cluster.link_between(here, there)
        if link is None:
            raise InvalidRequest(
                f"stages on {here} and {there} exchange data, but nothing in between_groups joins the two",
                pointer="/cluster/between_groups",
            )
        return GroupBridge(link=link)
