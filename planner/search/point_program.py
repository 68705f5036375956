"""One point per stage, as an integer program: no known path longer than the step.

All figures are exact integers: nanoseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.hosts import host_rows
from planner.search.point_choices import Choices
from planner.search.rows import PathRows
from planner.search.solver import LARGEST_SUM, WorkLimits, solver_within
from planner.search.stage_points import StagePoint

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpSolver, IntVar


@dataclass(frozen=True, kw_only=True, slots=True)
class PointAnswer:
    """A point per stage, None where none is within the limit; a bound on the longest known path.

    ``finished`` is False when the work limit came first.
    """

    chosen: tuple[StagePoint, ...] | None
    bound_ns: int
    finished: bool


class PointProgram:
    """The program over one point per stage, each path at most ``within_ns`` long."""

    def __init__(
        self,
        problem: PipelineProblem,
        choices: Choices,
        rows: PathRows,
        *,
        at_least_ns: int,
        within_ns: int,
    ) -> None:
        from ortools.sat.python.cp_model import CpModel

        self._problem, self._points = problem, [own.points for own in choices]
        self._at_least_ns, self._within_ns = at_least_ns, within_ns
        self._model: CpModel = CpModel()
        self._step_ns = self._model.new_int_var(min(at_least_ns, within_ns), within_ns, "step")
        self._picks = [[self._model.new_bool_var("") for _ in own] for own in self._points]
        self._flat = [pick for own in self._picks for pick in own]
        # Every stage takes exactly one point, and together they hold every layer.
        for own in self._picks:
            self._model.add_exactly_one(own)
        layers = [count for own in choices for count in own.layers.tolist()]
        self._add_row(self._flat, layers, low=problem.num_layers, high=problem.num_layers)
        self._fit_hosts()
        self._add_paths(choices, rows)

    def _fit_hosts(self) -> None:
        """State that what the stages of a node keep on its host fits there together."""
        rows, shape = host_rows(self._problem), self._problem.shape
        if rows is None:
            return
        for devices, room in rows.nodes():
            held = [
                sum(
                    devices.get(chunk, 0) * int(rows.per_layer(chunk) @ np.array(entry, dtype=np.int64))
                    for chunk, entry in zip(
                        range(shape.num_chunks)[shape.own(stage)], point.counts, strict=True
                    )
                )
                for stage, own in enumerate(self._points)
                for point in own
            ]
            self._add_row(self._flat, held, low=-LARGEST_SUM, high=room)

    def _add_paths(self, choices: Choices, rows: PathRows) -> None:
        """State that the step is no shorter than any known path that may be longer than its least."""
        longest = rows.constant_ns + sum(own.lengths_ns.max(axis=0) for own in choices)
        matter = np.flatnonzero(longest > min(self._at_least_ns, self._within_ns))
        lengths = np.concatenate([own.lengths_ns[:, matter] for own in choices]).T
        constants = rows.constant_ns[matter].tolist()
        assert int(longest.max()) + self._within_ns < LARGEST_SUM
        for row, constant in zip(lengths.tolist(), constants, strict=True):
            self._add_row([*self._flat, self._step_ns], [*row, -1], low=-LARGEST_SUM, high=-constant)

    def _add_row(self, variables: "Sequence[IntVar]", factors: Sequence[int], *, low: int, high: int) -> None:
        from ortools.sat.python.cp_model import LinearExpr

        self._model.add_linear_constraint(LinearExpr.weighted_sum(variables, factors), low, high)

    def hint(self, chosen: Sequence[StagePoint]) -> None:
        """Suggest a plan to start from."""
        for picks, own, hinted in zip(self._picks, self._points, chosen, strict=True):
            for pick, point in zip(picks, own, strict=True):
                self._model.add_hint(pick, point == hinted)

    def least_time(self, limits: WorkLimits) -> PointAnswer:
        """Return the choice whose longest known path is shortest."""
        self._model.minimize(self._step_ns)
        return self._solve(limits)

    def simplest(self, limits: WorkLimits) -> PointAnswer:
        """Return the choice of fewest techniques; among those the most even one, fuller stages first."""
        from ortools.sat.python.cp_model import LinearExpr

        count, total = len(self._points), self._problem.num_layers
        uneven_weight = count * total + 1
        technique_weight = 2 * total * uneven_weight + 1
        factors = [
            point.techniques * technique_weight
            + max(point.num_layers - -(-total // count), total // count - point.num_layers, 0) * uneven_weight
            + stage * point.num_layers
            for stage, own in enumerate(self._points)
            for point in own
        ]
        assert sum(factors) < LARGEST_SUM
        self._model.minimize(LinearExpr.weighted_sum(self._flat, factors))
        return self._solve(limits)

    def _solve(self, limits: WorkLimits) -> PointAnswer:
        from ortools.sat.python import cp_model

        solver = solver_within(limits)
        status = solver.solve(self._model)
        if status == cp_model.INFEASIBLE:
            return PointAnswer(chosen=None, bound_ns=self._within_ns + 1, finished=True)
        found = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
        return PointAnswer(
            chosen=self._read(solver) if found else None,
            bound_ns=max(int(solver.best_objective_bound), self._at_least_ns),
            finished=status == cp_model.OPTIMAL,
        )

    def _read(self, solver: "CpSolver") -> tuple[StagePoint, ...]:
        return tuple(
            next(point for pick, point in zip(picks, own, strict=True) if solver.boolean_value(pick))
            for picks, own in zip(self._picks, self._points, strict=True)
        )
