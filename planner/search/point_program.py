"""One point per stage, as an integer program: no known path longer than the step.

All figures are exact integers: nanoseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.program import LARGEST_SUM, WorkLimits
from planner.search.rows import Integers, PathRows
from planner.search.stage_points import StagePoint


@dataclass(frozen=True, kw_only=True, slots=True)
class PointAnswer:
    """A point per stage, None where none is within the limit; a bound on the longest known path.

    ``finished`` is False when the work limit came first.
    """

    chosen: tuple[StagePoint, ...] | None
    bound_ns: int
    finished: bool


def point_lengths(problem: PipelineProblem, rows: PathRows, stage: int, point: StagePoint) -> Integers:
    """Return what a point of a stage adds to each path, in nanoseconds: [rows]."""
    own = slice(stage, None, problem.shape.num_stages)
    counts = np.array(point.counts, dtype=np.int64)
    forward = counts @ np.array([option.forward_ns for option in problem.options], dtype=np.int64)
    backward = counts @ np.array([option.backward_ns for option in problem.options], dtype=np.int64)
    layers = counts.sum(axis=1)
    lengths: Integers = (
        rows.forward[:, own] @ forward
        + rows.backward[:, own] @ backward
        + rows.layer_ns[:, own] @ layers
        - rows.relief_ns[:, own] @ (layers == 0).astype(np.int64)
    )
    return lengths


def cheapest_points(
    problem: PipelineProblem,
    points: Sequence[Sequence[StagePoint]],
    rows: PathRows,
    *,
    at_least_ns: int,
    within_ns: int,
    hint: Sequence[StagePoint] | None,
    limits: WorkLimits,
) -> PointAnswer:
    """Return the choice of one point per stage whose longest known path is shortest.

    Among equal lengths the one of fewest techniques is not looked for: points of a stage that
    differ in techniques alone are dropped before.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    step = model.new_int_var(min(at_least_ns, within_ns), within_ns, "step")
    picks = [[model.new_bool_var("") for _ in own] for own in points]
    # Every stage takes exactly one point, and together they hold every layer.
    for own in picks:
        model.add_exactly_one(own)
    flat = [pick for own in picks for pick in own]
    layers = [point.num_layers for own in points for point in own]
    model.add(cp_model.LinearExpr.weighted_sum(flat, layers) == problem.num_layers)
    lengths = np.concatenate(
        [
            np.array([point_lengths(problem, rows, stage, point) for point in own], dtype=np.int64).T
            for stage, own in enumerate(points)
        ],
        axis=1,
    )
    assert int(lengths.sum(axis=1).max()) + within_ns < LARGEST_SUM
    # The step is no shorter than any known path.
    for row, constant in zip(lengths.tolist(), rows.constant_ns.tolist(), strict=True):
        model.add(cp_model.LinearExpr.weighted_sum([*flat, step], [*row, -1]) <= -constant)
    model.minimize(step)
    if hint is not None:
        for own, choices, hinted in zip(picks, points, hint, strict=True):
            for pick, point in zip(own, choices, strict=True):
                model.add_hint(pick, point == hinted)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = limits.num_workers
    solver.parameters.random_seed = limits.seed
    # Work, not wall clock: on a busy machine a clock stops earlier and gives another plan.
    solver.parameters.max_deterministic_time = limits.deterministic_seconds
    solver.parameters.max_time_in_seconds = max(limits.wall_clock_seconds, 0.0)
    solver.parameters.linearization_level = 2
    solver.parameters.symmetry_level = 0
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return PointAnswer(chosen=None, bound_ns=within_ns + 1, finished=True)
    found = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
    chosen = (
        tuple(
            next(point for pick, point in zip(own, choices, strict=True) if solver.boolean_value(pick))
            for own, choices in zip(picks, points, strict=True)
        )
        if found
        else None
    )
    return PointAnswer(
        chosen=chosen,
        bound_ns=max(int(solver.best_objective_bound), at_least_ns),
        finished=status == cp_model.OPTIMAL,
    )
