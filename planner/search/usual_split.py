"""A layout whose framework spreads the layers itself: one plan, which is played."""

from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.steady import play_step
from planner.expansion import in_classes
from planner.rules.layers import usual_split
from planner.search.hosts import fits_hosts
from planner.search.master import Excluded, Solution
from planner.setting import Setting
from planner.strategy import Layout


def play_usual_split(
    problem: PipelineProblem, layout: Layout, setting: Setting, *, cutoff_ns: int | None = None
) -> Solution | Excluded:
    """Return the one assignment of a layout, or that it takes more than ``cutoff_ns`` or does not fit.

    Every layer has one way to run: a framework that spreads layers itself decides that for a whole job.
    """
    (_,) = layout.recompute
    assignment = in_classes(usual_split(setting, layout), setting.body)
    costs = chunk_costs(problem, assignment)
    stages = range(problem.shape.num_stages)
    over = any(stage_peak_bytes(problem, costs, stage) > problem.limit_bytes for stage in stages)
    if over or not fits_hosts(problem, assignment):
        return Excluded(lower_bound_ns=None)
    makespan_ns = play_step(problem, costs).makespan_ns
    if cutoff_ns is not None and makespan_ns > cutoff_ns:
        return Excluded(lower_bound_ns=makespan_ns)
    return Solution(assignment=assignment, makespan_ns=makespan_ns, lower_bound_ns=makespan_ns)
