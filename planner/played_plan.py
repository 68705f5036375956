"""A plan priced where its stages sit, with one step of it replayed: what its prediction is read from."""

from dataclasses import dataclass

from planner.cluster import NodeGroup
from planner.cost.layout_costs import LayoutCosts, PartCost
from planner.cost.model import CostModel
from planner.cost.pipeline import Assignment, PipelineProblem
from planner.cost.placed_layout import PlacedLayout, place
from planner.cost.steady import StepEnds, step_ends
from planner.legality import Setting
from planner.strategy import Layout


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedPlan:
    """A plan with everything that its prediction is read from."""

    layout: Layout
    assignment: Assignment
    placed: PlacedLayout
    played: StepEnds

    @property
    def problem(self) -> PipelineProblem:
        """What was replayed."""
        return self.placed.problem

    @property
    def setting(self) -> Setting:
        """What the plan trains, and how."""
        return self.placed.stages[0].model.setting

    def costs(self, stage: int) -> LayoutCosts:
        """Return the figures of a stage on its node group."""
        return self.placed.stages[stage].costs

    def group(self, stage: int) -> NodeGroup:
        """Return the node group of a stage."""
        return self.placed.stages[stage].model.group

    def part_counts(self, stage: int) -> list[tuple[PartCost, int]]:
        """Return the parts on a stage and how many of each: layers by option, and the chain's ends."""
        chunks = self.problem.shape.chunks_of(stage)
        costs = self.costs(stage)
        counted = [
            (part, sum(self.assignment[chunk][option] for chunk in chunks))
            for option, part in enumerate(costs.layers)
        ]
        ends = [(costs.first, 0 in chunks), (costs.last, self.problem.shape.num_chunks - 1 in chunks)]
        return [*counted, *((part, int(present)) for part, present in ends)]

    def chunk_parts(self, stage: int) -> list[list[tuple[PartCost, int]]]:
        """Return parts and counts of each chunk of a stage."""
        shape, costs = self.problem.shape, self.costs(stage)
        own: list[list[tuple[PartCost, int]]] = []
        for chunk in shape.chunks_of(stage):
            parts = list(zip(costs.layers, self.assignment[chunk], strict=True))
            parts += [(costs.first, 1)] if chunk == 0 else []
            parts += [(costs.last, 1)] if chunk == shape.num_chunks - 1 else []
            own.append(parts)
        return own


def play(model: CostModel, layout: Layout, assignment: Assignment) -> PlayedPlan:
    """Price a layout on one node group and replay one step of it."""
    return play_placed(place(model, layout), layout, assignment)


def play_placed(placed: PlacedLayout, layout: Layout, assignment: Assignment) -> PlayedPlan:
    """Play one step of a layout that is priced where its stages sit."""
    played = step_ends(placed.problem, placed.chunk_costs(assignment))
    return PlayedPlan(layout=layout, assignment=assignment, placed=placed, played=played)
