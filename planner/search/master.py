"""Layers and recomputation to chunks, as an integer program over counts; exact by critical-path rounds.

The program knows some paths of the replay's graph and asks that the step be no shorter than any of
them. Its answer is replayed; where the replay takes longer, the path that it violates is added and
the program solved again. When program and replay agree, no split is better.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.cost.critical_path import PathCounts, critical_path
from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs
from planner.cost.replay import Replay, replay
from planner.cost.schedules import Moment, memory_moments
from planner.search.layout_bounds import layout_bound_ns
from planner.search.incumbent import fits, starting_assignments
from planner.search.stage_path import stage_path

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

DETERMINISTIC_SECONDS: Final = 20.0
"""CP-SAT's own measure of work at which one program is given up, whatever the clock says."""
SEED: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """The best split of a layout: ``makespan_ns`` is its replay."""

    assignment: Assignment
    makespan_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
    """How a layout ended: ``best`` within the cutoff or None, and a bound for every split.

    ``complete`` is False when work or time ran out before the two met.
    """

    best: Solution | None
    lower_bound_ns: int
    complete: bool


def solve(problem: PipelineProblem, *, cutoff_ns: int | None = None, deadline: float | None = None) -> Solved:
    """Return the best split of a layout that takes at most ``cutoff_ns``.

    ``deadline`` is a reading of ``time.monotonic``.
    """
    bound = layout_bound_ns(problem)
    if bound is None or (cutoff_ns is not None and bound > cutoff_ns):
        return Solved(best=None, lower_bound_ns=bound or 0, complete=True)
    rounds = _Rounds(problem, bound_ns=bound, cutoff_ns=cutoff_ns, deadline=deadline)
    return rounds.run()


class _Rounds:
    """The rounds between program and replay."""

    def __init__(
        self, problem: PipelineProblem, *, bound_ns: int, cutoff_ns: int | None, deadline: float | None
    ) -> None:
        self._problem, self._bound_ns = problem, bound_ns
        self._cutoff_ns, self._deadline = cutoff_ns, deadline
        self._best: Solution | None = None
        self._paths: list[PathCounts] = [
            stage_path(problem, stage) for stage in range(problem.shape.num_stages)
        ]

    def run(self) -> Solved:
        for assignment in starting_assignments(self._problem):
            self._try(assignment)
        program = _Program(self._problem, self._bound_ns)
        known = 0
        while True:
            for path in self._paths[known:]:
                program.add_path(path)
            known = len(self._paths)
            outcome = program.solve(
                limit_ns=self._limit_ns(),
                hint=self._best and self._best.assignment,
                seconds=self._seconds_left(),
            )
            if outcome is None:
                return self._ended(complete=True)
            self._bound_ns = max(self._bound_ns, outcome.bound_ns)
            if outcome.assignment is None or not outcome.proven:
                return self._ended(complete=False)
            if self._try(outcome.assignment).makespan_ns <= outcome.length_ns:
                return self._ended(complete=True)

    def _try(self, assignment: Assignment) -> Replay:
        """Replay an assignment, keep it if it is the best one, and learn its critical path."""
        played = replay(self._problem, chunk_costs(self._problem, assignment))
        self._paths.append(critical_path(played))
        better = self._best is None or played.makespan_ns < self._best.makespan_ns
        within = self._cutoff_ns is None or played.makespan_ns <= self._cutoff_ns
        if better and within and fits(self._problem, assignment):
            self._best = Solution(assignment=assignment, makespan_ns=played.makespan_ns)
        return played

    def _limit_ns(self) -> int | None:
        return self._best.makespan_ns if self._best else self._cutoff_ns

    def _seconds_left(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.01)

    def _ended(self, *, complete: bool) -> Solved:
        bound = self._best.makespan_ns if self._best and complete else self._bound_ns
        return Solved(best=self._best, lower_bound_ns=bound, complete=complete)


@dataclass(frozen=True, kw_only=True, slots=True)
class _ProgramOutcome:
    """The program's answer: its longest known path, a bound on it, whether the two are equal."""

    assignment: Assignment | None
    length_ns: int
    bound_ns: int
    proven: bool


class _Program:
    """The integer program: counts of layers per chunk and option, and the step's length."""

    def __init__(self, problem: PipelineProblem, bound_ns: int) -> None:
        from ortools.sat.python import cp_model

        self._problem, self._bound_ns = problem, bound_ns
        self._cp = cp_model
        self._model = cp_model.CpModel()
        self._counts = [
            [
                self._model.new_int_var(0, problem.num_layers, f"layers_{c}_{s}")
                for s in range(len(problem.options))
            ]
            for c in range(problem.shape.num_chunks)
        ]
        self._layers = [sum(counts) for counts in self._counts]
        # Every layer sits in exactly one chunk; every chunk holds its fewest.
        self._model.add(sum(self._layers) == problem.num_layers)
        for chunk, layers in enumerate(self._layers):
            self._model.add(layers >= problem.minimum_layers(chunk))
        for stage in range(problem.shape.num_stages):
            self._add_memory(stage)
        self._length = self._model.new_int_var(bound_ns, 2**60, "step_ns")
        self._model.minimize(self._length)

    def add_path(self, path: PathCounts) -> None:
        """Ask that the step be no shorter than a path."""
        self._model.add(self._length >= self._path_length(path))

    def solve(
        self, *, limit_ns: int | None, hint: Assignment | None, seconds: float | None
    ) -> _ProgramOutcome | None:
        """Return the shortest step that the known paths allow, None when none is within the limit."""
        model = self._model.clone()
        if limit_ns is not None:
            model.add(model.get_int_var_from_proto_index(self._length.index) <= limit_ns)
        if hint is not None:
            for variables, counts in zip(self._counts, hint, strict=True):
                for variable, count in zip(variables, counts, strict=True):
                    model.add_hint(model.get_int_var_from_proto_index(variable.index), count)
        solver = self._solver(seconds)
        status = solver.solve(model)
        if status == self._cp.INFEASIBLE:
            return None
        found = status in {self._cp.OPTIMAL, self._cp.FEASIBLE}
        return _ProgramOutcome(
            assignment=self._assignment(solver) if found else None,
            length_ns=solver.value(self._length) if found else 0,
            bound_ns=max(int(solver.best_objective_bound), self._bound_ns),
            proven=status == self._cp.OPTIMAL,
        )

    def _solver(self, seconds: float | None) -> "cp_model.CpSolver":
        solver = self._cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = SEED
        # Work, not wall clock: on a busy machine a clock stops earlier and gives another plan.
        solver.parameters.max_deterministic_time = DETERMINISTIC_SECONDS
        if seconds is not None:
            solver.parameters.max_time_in_seconds = seconds
        return solver

    def _assignment(self, solver: "cp_model.CpSolver") -> Assignment:
        return tuple(tuple(solver.value(variable) for variable in counts) for counts in self._counts)

    def _path_length(self, path: PathCounts) -> "cp_model.LinearExprT":
        terms = [
            self._pass_time(chunk, forward=path.forward[chunk], backward=path.backward[chunk])
            + self._step_time(chunk, path)
            for chunk in range(self._problem.shape.num_chunks)
        ]
        return sum(terms) + path.constant_ns

    def _pass_time(self, chunk: int, *, forward: int, backward: int) -> "cp_model.LinearExprT":
        part = self._problem.fixed_part(chunk)
        options = zip(self._counts[chunk], self._problem.options, strict=True)
        counted = sum(
            (forward * option.forward_ns + backward * option.backward_ns) * count for count, option in options
        )
        return counted + forward * part.forward_ns + backward * part.backward_ns

    def _step_time(self, chunk: int, path: PathCounts) -> "cp_model.LinearExprT":
        part, problem = self._problem.fixed_part(chunk), self._problem
        counts = (path.gather[chunk], path.reduce[chunk], path.optimizer[chunk])
        per_layer = (problem.gather_ns, problem.reduce_ns, problem.optimizer_ns)
        fixed = (part.gather_ns, part.reduce_ns, part.optimizer_ns)
        each = sum(count * duration for count, duration in zip(counts, per_layer, strict=True))
        return each * self._layers[chunk] + sum(
            count * duration for count, duration in zip(counts, fixed, strict=True)
        )

    def _add_memory(self, stage: int) -> None:
        """No moment of a stage's order may exceed its limit."""
        problem = self._problem
        own = range(stage, problem.shape.num_chunks, problem.shape.num_stages)
        static = problem.base_bytes + sum(
            problem.static_bytes * self._layers[chunk] + problem.fixed_part(chunk).static_bytes
            for chunk in own
        )
        used = {chunk: self._used_options(chunk) for chunk in own}
        for moment in memory_moments(problem.shape, stage):
            held = static + sum(
                count * self._saved(chunk) for count, chunk in zip(moment.saved, own, strict=True)
            )
            self._model.add(held + self._fixed_working(moment, own) <= problem.limit_bytes)
            if moment.backward:
                for option, is_used in zip(problem.options, used[own[moment.turn]], strict=True):
                    self._model.add(held + option.working_bytes * is_used <= problem.limit_bytes)

    def _fixed_working(self, moment: Moment, own: Sequence[int]) -> int:
        return self._problem.fixed_part(own[moment.turn]).working_bytes if moment.backward else 0

    def _saved(self, chunk: int) -> "cp_model.LinearExprT":
        options = zip(self._counts[chunk], self._problem.options, strict=True)
        return (
            sum(option.saved_bytes * count for count, option in options)
            + self._problem.fixed_part(chunk).saved_bytes
        )

    def _used_options(self, chunk: int) -> "list[cp_model.IntVar]":
        """Return whether any layer of a chunk runs by each option: working memory asks only then."""
        used = []
        for option, count in enumerate(self._counts[chunk]):
            is_used = self._model.new_bool_var(f"used_{chunk}_{option}")
            self._model.add(count <= self._problem.num_layers * is_used)
            used.append(is_used)
        return used
