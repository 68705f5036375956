"""The integer program of one layout: layers and ways to chunks, no known path longer than the step.

All figures are exact integers: nanoseconds and bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.cost.pipeline import LayerOption, PipelineProblem
from planner.search.box import Box
from planner.search.hosts import host_rows
from planner.search.memory_rows import memory_rows
from planner.search.rows import Integers, PathRows
from planner.search.solver import LARGEST_SUM, WorkLimits, solver_within
from planner.search.stage import TECHNIQUES, Way, Ways
from planner.strategy import RecomputeMode

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpSolver, IntVar


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a program says: a plan, None when there is none within its limits, and a proven bound.

    ``finished`` is False when the work limit came first; then ``chosen`` may be missing or improvable.
    """

    chosen: tuple[Way, ...] | None
    bound: int
    finished: bool


@dataclass(frozen=True, slots=True)
class _Term:
    """An integer variable times a factor."""

    variable: "IntVar"
    factor: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chunk:
    """The decision on one chunk and what its layers add, each a variable times a factor."""

    ways: tuple[Way, ...]
    picks: "tuple[IntVar, ...]"
    layers: "IntVar"
    is_used: "IntVar | None"
    forward: _Term
    backward: _Term
    saved: _Term
    host_saved: _Term
    techniques: _Term


class Program:
    """The program over the plans of one layout that take at most ``within_ns``, layers in a box."""

    def __init__(
        self, problem: PipelineProblem, ways: Ways, box: Box, *, at_least_ns: int, within_ns: int
    ) -> None:
        from ortools.sat.python.cp_model import CpModel

        assert within_ns < LARGEST_SUM
        self._problem, self._ways = problem, ways
        self._model: CpModel = CpModel()
        self._step_ns = self._model.new_int_var(min(at_least_ns, within_ns), within_ns, "step")
        self._chunks = [
            self._chunk(chunk, int(box.low[chunk]), int(box.high[chunk]))
            for chunk in range(problem.shape.num_chunks)
        ]
        # Every layer sits in exactly one chunk.
        self._model.add(sum(chunk.layers for chunk in self._chunks) == problem.num_layers)
        if problem.shape.virtual_stages > 1:
            for stage in range(problem.shape.num_stages):
                self._fit_memory(stage)
        self._fit_hosts()

    # --- decisions -----------------------------------------------------------------------------

    def _chunk(self, chunk: int, low: int, high: int) -> _Chunk:
        layers = self._model.new_int_var(low, high, f"layers_{chunk}")
        is_used = self._is_used(layers, high) if low == 0 else None
        if self._ways.only is not None:
            return self._plain_chunk(self._ways.only, layers, is_used)
        ways = tuple(way for count in range(low, high + 1) for way in self._ways.of(chunk, count))
        # A chunk runs in exactly one way.
        picks = tuple(self._model.new_bool_var(f"pick_{chunk}_{i}") for i in range(len(ways)))
        self._model.add_exactly_one(picks)
        self._equate(layers, picks, [way.num_layers for way in ways])
        return _Chunk(
            ways=ways,
            picks=picks,
            layers=layers,
            is_used=is_used,
            forward=self._added(layers, picks, ways, lambda way: way.forward_ns),
            backward=self._added(layers, picks, ways, lambda way: way.backward_ns),
            saved=self._added(layers, picks, ways, lambda way: way.saved_bytes),
            host_saved=self._added(layers, picks, ways, lambda way: way.host_saved_bytes),
            techniques=self._added(layers, picks, ways, lambda way: way.techniques),
        )

    def _plain_chunk(self, option: LayerOption, layers: "IntVar", is_used: "IntVar | None") -> _Chunk:
        """Return a chunk all of whose layers run alike: their number is all there is to decide."""
        return _Chunk(
            ways=(),
            picks=(),
            layers=layers,
            is_used=is_used,
            forward=_Term(layers, option.forward_ns),
            backward=_Term(layers, option.backward_ns),
            saved=_Term(layers, option.saved_bytes),
            host_saved=_Term(layers, option.host_saved_bytes),
            techniques=_Term(layers, 0),
        )

    def _is_used(self, layers: "IntVar", high: int) -> "IntVar":
        is_used = self._model.new_bool_var("is_used")
        self._model.add(layers >= is_used)
        self._model.add(layers <= high * is_used)
        return is_used

    def _added(
        self,
        layers: "IntVar",
        picks: "Sequence[IntVar]",
        ways: Sequence[Way],
        figure: Callable[[Way], int],
    ) -> _Term:
        """Return what a chunk's layers add: so much each where ways agree, else a variable of its own."""
        figures = [figure(way) for way in ways]
        each = {value / way.num_layers for value, way in zip(figures, ways, strict=True) if way.num_layers}
        if len(each) == 1 and (rate := each.pop()).is_integer():
            return _Term(layers, int(rate))
        added = self._model.new_int_var(min(figures, default=0), max(figures, default=0), "added")
        self._equate(added, picks, figures)
        return _Term(added, 1)

    def _equate(self, total: "IntVar", picks: "Sequence[IntVar]", values: Sequence[int]) -> None:
        """State that a total is the value of the pick."""
        self._add_row([*picks, total], [*values, -1], low=0, high=0)

    # --- memory --------------------------------------------------------------------------------

    def _fit_memory(self, stage: int) -> None:
        """State that a stage fits its memory at every moment at which it can peak."""
        rows = memory_rows(self._problem, stage)
        own = self._chunks[stage :: self._problem.shape.num_stages]
        for kept, turn, fixed in zip(
            rows.kept.tolist(), rows.working_turn.tolist(), rows.fixed_bytes.tolist(), strict=True
        ):
            terms = [_Term(chunk.layers, self._problem.static_bytes) for chunk in own]
            terms += [
                _Term(chunk.saved.variable, count * chunk.saved.factor)
                for count, chunk in zip(kept, own, strict=True)
            ]
            more, beyond = self._working(own[turn], int(rows.fixed_working[turn]))
            self._bound(terms + more, self._problem.limit_bytes - fixed - beyond)

    def _fit_hosts(self) -> None:
        """State that what the stages of a node keep on its host fits there together."""
        rows = host_rows(self._problem)
        if rows is None:
            return
        (layers,) = self._problem.classes
        for devices, room in rows.nodes():
            terms = []
            for chunk, count in devices.items():
                own, kept = self._chunks[chunk], count * rows.kept[chunk]
                terms.append(_Term(own.layers, count * layers.host_bytes))
                terms.append(_Term(own.host_saved.variable, kept * own.host_saved.factor))
            self._bound(terms, room)

    def _working(self, chunk: _Chunk, fixed_bytes: int) -> tuple[list[_Term], int]:
        """Return a chunk's working bytes while its backward pass runs: terms, and what is there anyhow."""
        if self._ways.only is not None:
            more = max(self._ways.only.working_bytes - fixed_bytes, 0)
            if chunk.is_used is None:
                return [], fixed_bytes + more
            return [_Term(chunk.is_used, more)], fixed_bytes
        return [
            _Term(pick, max(way.working_bytes, fixed_bytes))
            for pick, way in zip(chunk.picks, chunk.ways, strict=True)
        ], 0

    # --- paths ---------------------------------------------------------------------------------

    def add_paths(self, rows: PathRows) -> None:
        """State that the step takes at least as long as each path."""
        variables, weights = self._path_weights(rows)
        may_be_empty = np.array([chunk.is_used is not None for chunk in self._chunks])
        limits = rows.relief_ns[:, may_be_empty].sum(axis=1) - rows.constant_ns
        for row, limit in zip(weights, limits.tolist(), strict=True):
            places = row.nonzero()[0].tolist()
            on_path = [*(variables[place] for place in places), self._step_ns]
            self._add_row(on_path, [*row[places].tolist(), -1], low=None, high=limit)

    def _path_weights(self, rows: PathRows) -> "tuple[list[IntVar], Integers]":
        """Return the variables on paths and their weights on each: [row, variable].

        What a chunk's layers add is a multiple of their number where it has no variable of its own.
        """
        variables = [chunk.layers for chunk in self._chunks]
        layers = rows.layer_ns.copy()
        apart: list[Integers] = []
        for place, chunk in enumerate(self._chunks):
            for term, passes in (
                (chunk.forward, rows.forward[:, place]),
                (chunk.backward, rows.backward[:, place]),
            ):
                if term.variable is chunk.layers:
                    layers[:, place] += passes * term.factor
                else:
                    variables.append(term.variable)
                    apart.append(passes * term.factor)
            if chunk.is_used is not None:
                variables.append(chunk.is_used)
                apart.append(rows.relief_ns[:, place])
        return variables, np.column_stack((layers, *apart))

    def _bound(self, terms: Sequence[_Term], limit: int) -> None:
        """Add ``terms <= limit``, the terms of one variable put together."""
        factors: dict[int, int] = {}
        variables: dict[int, IntVar] = {}
        for term in terms:
            if term.factor:
                factors[term.variable.index] = factors.get(term.variable.index, 0) + term.factor
                variables[term.variable.index] = term.variable
        self._add_row([variables[index] for index in factors], list(factors.values()), low=None, high=limit)

    def _add_row(
        self, variables: "Sequence[IntVar]", factors: Sequence[int], *, low: int | None, high: int
    ) -> None:
        from ortools.sat.python.cp_model import LinearExpr

        row = LinearExpr.weighted_sum(variables, factors)
        self._model.add_linear_constraint(row, -LARGEST_SUM if low is None else low, high)

    # --- solving -------------------------------------------------------------------------------

    def least_time(self, limits: WorkLimits) -> Answer:
        """Return the plan whose longest known path is shortest."""
        self._model.minimize(self._step_ns)
        return self._solve(limits)

    def simplest(self, limits: WorkLimits) -> Answer:
        """Return the plan of fewest techniques; among those the most even one, fuller chunks first."""
        from ortools.sat.python.cp_model import LinearExpr

        count, layers = len(self._chunks), self._problem.num_layers
        uneven = [self._unevenness(chunk) for chunk in self._chunks]
        place_weight = 1
        uneven_weight = count * layers * place_weight + 1
        technique_weight = 2 * layers * uneven_weight + 1
        assert technique_weight * layers * 2 * TECHNIQUES[RecomputeMode.FULL] < LARGEST_SUM
        variables, factors = [], []
        for place, chunk in enumerate(self._chunks):
            variables += [chunk.techniques.variable, uneven[place], chunk.layers]
            factors += [
                chunk.techniques.factor * technique_weight,
                uneven_weight,
                place * place_weight,
            ]
        self._model.minimize(LinearExpr.weighted_sum(variables, factors))
        return self._solve(limits)

    def _unevenness(self, chunk: _Chunk) -> "IntVar":
        """Return the layers that a chunk holds beyond, or lacks to, the average."""
        layers, count = self._problem.num_layers, len(self._chunks)
        off = self._model.new_int_var(0, layers, "uneven")
        self._model.add(off >= chunk.layers - -(-layers // count))
        self._model.add(off >= layers // count - chunk.layers)
        return off

    def hint(self, chosen: Sequence[Way]) -> None:
        """Suggest a plan to start from."""
        for chunk, way in zip(self._chunks, chosen, strict=True):
            self._model.add_hint(chunk.layers, way.num_layers)
            for pick, option in zip(chunk.picks, chunk.ways, strict=True):
                self._model.add_hint(pick, option == way)

    def _solve(self, limits: WorkLimits) -> Answer:
        from ortools.sat.python import cp_model

        solver = solver_within(limits)
        status = solver.solve(self._model)
        if status == cp_model.INFEASIBLE:
            return Answer(chosen=None, bound=0, finished=True)
        assert status != cp_model.MODEL_INVALID, self._model.validate()
        found = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
        return Answer(
            chosen=tuple(self._read(solver, place) for place in range(len(self._chunks))) if found else None,
            bound=round(solver.best_objective_bound),
            finished=status == cp_model.OPTIMAL,
        )

    def _read(self, solver: "CpSolver", place: int) -> Way:
        chunk = self._chunks[place]
        if self._ways.only is not None:
            return self._ways.of(place, solver.value(chunk.layers))[0]
        return next(
            way for pick, way in zip(chunk.picks, chunk.ways, strict=True) if solver.boolean_value(pick)
        )
