"""One span per chunk, as an integer program: the spans join into the chain, no known path is too long.

All figures are exact integers: nanoseconds and bytes.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.cost.pipeline import PipelineProblem
from planner.search.hosts import host_rows
from planner.search.memory_rows import memory_rows
from planner.search.rows import Integers
from planner.search.solver import LARGEST_SUM, WorkLimits, solver_within
from planner.search.span_places import alike_anywhere
from planner.search.span_stages import StageSizes
from planner.search.spans import PathTable, Spans

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpSolver, IntVar


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanAnswer:
    """A span per chunk by number, None where none is within the limit; a bound on the longest known path.

    ``finished`` is False when the work limit came first.
    """

    chosen: tuple[int, ...] | None
    bound_ns: int
    finished: bool


class SpanProgram:
    """The program over one span per chunk, each path at most ``within_ns`` long."""

    def __init__(
        self,
        problem: PipelineProblem,
        spans: Sequence[Spans],
        paths: PathTable,
        *,
        at_least_ns: int,
        within_ns: int,
    ) -> None:
        from ortools.sat.python.cp_model import CpModel

        self._problem = problem
        self._at_least_ns, self._within_ns = at_least_ns, within_ns
        self._model: CpModel = CpModel()
        self._step_ns = self._model.new_int_var(min(at_least_ns, within_ns), within_ns, "step")
        self._keeps_place = [not alike for alike in alike_anywhere(problem, spans)]
        # Where layers are alike wherever a chunk begins, spans of the same layers are one choice.
        self._numbers = [
            np.arange(len(own)) if keeps else np.unique(own.counts, axis=0, return_index=True)[1]
            for own, keeps in zip(spans, self._keeps_place, strict=True)
        ]
        spans = [own.only(chosen) for own, chosen in zip(spans, self._numbers, strict=True)]
        self._spans = spans
        self._picks = [[self._model.new_bool_var("") for _ in range(len(own))] for own in spans]
        self._flat = [pick for own in self._picks for pick in own]
        # Every chunk holds exactly one span.
        for own in self._picks:
            self._model.add_exactly_one(own)
        self._join()
        if problem.shape.virtual_stages > 1 or problem.shape.schedule.splits_backward:
            for stage in range(problem.shape.num_stages):
                self._fit_memory(stage)
        self._fit_hosts()
        self._add_paths(paths)

    def _fit_hosts(self) -> None:
        """State that what the stages of a node keep on its host fits there together."""
        rows = host_rows(self._problem)
        if rows is None:
            return
        for devices, room in rows.nodes():
            picks: list[IntVar] = []
            sizes: list[int] = []
            for chunk, count in devices.items():
                spans = self._spans[chunk]
                held = count * (spans.host_bytes + rows.kept[chunk] * spans.host_saved_bytes)
                picks += self._picks[chunk]
                sizes += held.tolist()
            self._add_row(picks, sizes, low=-LARGEST_SUM, high=room)

    def _join(self) -> None:
        """State that spans join into the chain; where each starts only as far as that makes a difference."""
        for chunk in range(1, len(self._spans)):
            if self._keeps_place[chunk] and not self._keeps_place[chunk - 1]:
                self._begin(chunk)
            elif self._keeps_place[chunk]:
                self._follow(chunk - 1)
        sizes = np.concatenate([own.end - own.start for own in self._spans]).tolist()
        self._add_row(self._flat, sizes, low=self._problem.num_layers, high=self._problem.num_layers)

    def hold(self, stages: StageSizes) -> None:
        """State how many layers stages may hold."""
        for stage, (low, high) in enumerate(zip(stages.low.tolist(), stages.high.tolist(), strict=True)):
            own = self._problem.shape.chunks_of(stage)
            picks = [pick for chunk in own for pick in self._picks[chunk]]
            sizes = np.concatenate([self._spans[chunk].end - self._spans[chunk].start for chunk in own])
            self._add_row(picks, sizes.tolist(), low=low, high=high)

    def _begin(self, chunk: int) -> None:
        """State that a chunk's span starts after as many layers as all chunks before it hold."""
        before = [own.end - own.start for own in self._spans[:chunk]]
        places = np.concatenate((*before, -self._spans[chunk].start)).tolist()
        self._add_row(self._flat[: len(places)], places, low=0, high=0)

    def _follow(self, chunk: int) -> None:
        """State that the span after a chunk's starts where that one ends."""
        ending: dict[int, list[IntVar]] = defaultdict(list)
        starting: dict[int, list[IntVar]] = defaultdict(list)
        for pick, end in zip(self._picks[chunk], self._spans[chunk].end.tolist(), strict=True):
            ending[end].append(pick)
        for pick, start in zip(self._picks[chunk + 1], self._spans[chunk + 1].start.tolist(), strict=True):
            starting[start].append(pick)
        for place in ending.keys() | starting.keys():
            before, after = ending[place], starting[place]
            factors = [1] * len(before) + [-1] * len(after)
            self._add_row([*before, *after], factors, low=0, high=0)

    def _fit_memory(self, stage: int) -> None:
        """State that a stage of several chunks fits its memory at every moment at which it can peak."""
        rows = memory_rows(self._problem, stage)
        own = self._problem.shape.chunks_of(stage)
        for kept, waiting, turn, fixed in zip(
            rows.kept.tolist(),
            rows.waiting.tolist(),
            rows.working_turn.tolist(),
            rows.fixed_bytes.tolist(),
            strict=True,
        ):
            picks: list[IntVar] = []
            sizes: list[int] = []
            for number, chunk in enumerate(own):
                spans = self._spans[chunk]
                held = spans.static_bytes + kept[number] * spans.saved_bytes
                held = held + waiting[number] * spans.held_bytes
                if number == turn:
                    held = held + np.maximum(spans.working_bytes, int(rows.fixed_working[number]))
                picks += self._picks[chunk]
                sizes += held.tolist()
            self._add_row(picks, sizes, low=-LARGEST_SUM, high=self._problem.limit_bytes - fixed)

    def _add_paths(self, paths: PathTable) -> None:
        """State that the step is no shorter than any known path."""
        lengths = np.concatenate(
            [own.lengths_ns(chunk, paths) for chunk, own in enumerate(self._spans)], axis=0
        ).T
        assert self._longest(lengths) + self._within_ns < LARGEST_SUM
        for row, constant in zip(lengths.tolist(), paths.constant_ns.tolist(), strict=True):
            self._add_row([*self._flat, self._step_ns], [*row, -1], low=-LARGEST_SUM, high=-constant)

    @staticmethod
    def _longest(lengths: Integers) -> int:
        return int(np.abs(lengths).sum(axis=1).max(initial=0))

    def _add_row(self, variables: "Sequence[IntVar]", factors: Sequence[int], *, low: int, high: int) -> None:
        from ortools.sat.python.cp_model import LinearExpr

        self._model.add_linear_constraint(LinearExpr.weighted_sum(variables, factors), low, high)

    def least_time(self, limits: WorkLimits) -> SpanAnswer:
        """Return the choice whose longest known path is shortest."""
        from ortools.sat.python import cp_model

        self._model.minimize(self._step_ns)
        solver = solver_within(limits)
        status = solver.solve(self._model)
        if status == cp_model.INFEASIBLE:
            return SpanAnswer(chosen=None, bound_ns=self._within_ns + 1, finished=True)
        assert status != cp_model.MODEL_INVALID, self._model.validate()
        found = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
        return SpanAnswer(
            chosen=self._read(solver) if found else None,
            bound_ns=max(int(solver.best_objective_bound), self._at_least_ns),
            finished=status == cp_model.OPTIMAL,
        )

    def _read(self, solver: "CpSolver") -> tuple[int, ...]:
        return tuple(
            next(int(number) for number, pick in zip(numbers, own, strict=True) if solver.boolean_value(pick))
            for numbers, own in zip(self._numbers, self._picks, strict=True)
        )
