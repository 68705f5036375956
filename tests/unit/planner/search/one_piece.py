"""A layout's best plan by one integer program in one piece: every pass of the step has its own end in it.

A step's replay is a longest path, so the least makespan is the least value above all ends, each of which is
at least what comes before it plus its own time, a sum over the layers that its chunk holds. Nothing is taken
apart, bounded or replayed; only the order of passes and the costs of layers are shared with the search.
"""

from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from planner.cost.pipeline import PipelineProblem
from planner.cost.schedules import stage_orders

Sum = cp_model.LinearExpr | int


@dataclass
class OnePiece:
    """The program of a layout with one chunk per stage."""

    problem: PipelineProblem
    program: cp_model.CpModel = field(default_factory=cp_model.CpModel)

    def __post_init__(self) -> None:
        assert self.problem.shape.virtual_stages == 1
        self.stages = range(self.problem.shape.num_stages)
        self.horizon = self._everything_in_a_row_ns()
        self.ways = self._ways()
        self._place_layers()
        self._fit_memory()
        self.makespan = self.program.new_int_var(0, self.horizon, "makespan")
        self._play()
        self.program.minimize(self.makespan)

    def solve(self) -> int | None:
        """Return the least makespan, None where nothing fits."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        # All rows in the linear relaxation: the makespan is a longest path.
        solver.parameters.linearization_level = 2
        status = solver.solve(self.program)
        assert status in {cp_model.OPTIMAL, cp_model.INFEASIBLE}
        return round(solver.objective_value) if status == cp_model.OPTIMAL else None

    def _everything_in_a_row_ns(self) -> int:
        """Return a time that every plan undercuts: all work, waiting and sending one after the other."""
        problem = self.problem
        shape, options = problem.shape, [o for layers in problem.classes for o in layers.options]
        parts = [problem.fixed_part(chunk) for chunk in self.stages]
        passes = sum(part.forward_ns + part.backward_ns for part in parts)
        passes += problem.num_layers * max(o.forward_ns + o.backward_ns for o in options)
        once = sum(part.optimizer_ns + part.gather_ns + part.reduce_ns for part in parts)
        once += problem.num_layers * max(c.optimizer_ns + c.gather_ns + c.reduce_ns for c in problem.classes)
        waits = problem.barrier_ns + problem.tied_ns
        waits += shape.num_stages * (problem.gather_bucket_ns + problem.reduce_bucket_ns)
        sends = 2 * shape.num_stages * shape.num_micro_batches * problem.transfer_ns
        return shape.num_micro_batches * passes + once + waits + sends + 1

    # --- layers --------------------------------------------------------------------------------

    def _ways(self) -> list[list[list[cp_model.IntVar]]]:
        """Return how many layers of each class each stage runs with each option: [stage][class][option]."""
        most = self.problem.num_layers
        return [
            [
                [self.program.new_int_var(0, most, f"n{stage},{number},{option}") for option in options]
                for number, layers in enumerate(self.problem.classes)
                for options in [range(len(layers.options))]
            ]
            for stage in self.stages
        ]

    def _place_layers(self) -> None:
        """Give every layer to one stage, in the chain's order."""
        problem = self.problem
        for stage in self.stages:
            held = sum(sum(own) for own in self.ways[stage])
            self.program.add(held >= problem.minimum_layers(stage))
        for number, _ in enumerate(problem.classes):
            total = problem.sequence.count(number)
            self.program.add(sum(sum(self.ways[stage][number]) for stage in self.stages) == total)
        if problem.is_uniform:
            return
        inside = [[self.program.new_bool_var("") for _ in problem.sequence] for _ in self.stages]
        for place, _ in enumerate(problem.sequence):
            self.program.add_exactly_one(inside[stage][place] for stage in self.stages)
        for place in range(problem.num_layers - 1):
            # The next layer sits on the same stage or on a later one.
            here, there = (sum(s * inside[s][p] for s in self.stages) for p in (place, place + 1))
            self.program.add(here <= there)
        for stage in self.stages:
            for number, _ in enumerate(problem.classes):
                own = [inside[stage][place] for place, of in enumerate(problem.sequence) if of == number]
                self.program.add(sum(self.ways[stage][number]) == sum(own))

    def _of_options(self, stage: int, name: str) -> Sum:
        """Return a stage's sum of a figure of layer options, its fixed part included."""
        fixed: int = getattr(self.problem.fixed_part(stage), name)
        added: Sum = sum(
            getattr(option, name) * count
            for layers, own in zip(self.problem.classes, self.ways[stage], strict=True)
            for option, count in zip(layers.options, own, strict=True)
        )
        return fixed + added

    def _of_classes(self, stage: int, name: str) -> Sum:
        """Return a stage's sum of a figure of layers, its fixed part included."""
        fixed: int = getattr(self.problem.fixed_part(stage), name)
        added: Sum = sum(
            getattr(layers, name) * sum(own)
            for layers, own in zip(self.problem.classes, self.ways[stage], strict=True)
        )
        return fixed + added

    # --- memory --------------------------------------------------------------------------------

    def _fit_memory(self) -> None:
        """Keep every stage within its memory at every pass of its order."""
        problem = self.problem
        for stage in self.stages:
            free = problem.limit_bytes - problem.base_bytes - self._of_classes(stage, "static_bytes")
            saved, working = self._of_options(stage, "saved_bytes"), self._working(stage)
            kept = most_kept = most_at_backward = 0
            for step in stage_orders(problem.shape)[stage]:
                kept += not step.backward
                most_kept = max(most_kept, kept)
                most_at_backward = max(most_at_backward, kept if step.backward else 0)
                kept -= step.backward
            self.program.add(most_kept * saved <= free)
            self.program.add(most_at_backward * saved + working <= free)

    def _working(self, stage: int) -> Sum:
        """Return a variable that is at least the working memory of every layer that a stage runs."""
        fixed = self.problem.fixed_part(stage).working_bytes
        most = max(o.working_bytes for layers in self.problem.classes for o in layers.options)
        working = self.program.new_int_var(fixed, max(most, fixed), f"w{stage}")
        for layers, own in zip(self.problem.classes, self.ways[stage], strict=True):
            for option, count in zip(layers.options, own, strict=True):
                self.program.add(working >= option.working_bytes).only_enforce_if(self._is_some(count))
        return working

    def _is_some(self, amount: Sum) -> cp_model.IntVar:
        """Return whether something that is not negative is there at all."""
        there = self.program.new_bool_var("")
        self.program.add(amount >= 1).only_enforce_if(there)
        self.program.add(amount == 0).only_enforce_if(~there)
        return there

    # --- time ----------------------------------------------------------------------------------

    def _end(self, *after: Sum) -> cp_model.IntVar:
        """Return the end of an operation that is at least some sums."""
        end = self.program.new_int_var(0, self.horizon, "")
        for least in after:
            self.program.add(end >= least)
        return end

    def _play(self) -> None:
        """State the ends of updates, gathers, passes and reductions, and the makespan above them all."""
        problem, last = self.problem, self.problem.shape.num_stages - 1
        hop = problem.transfer_ns if last else 0
        updated = [problem.barrier_ns + self._of_classes(stage, "optimizer_ns") for stage in self.stages]
        gathers = [self._of_classes(stage, "gather_ns") for stage in self.stages]
        gathered = [start + gather for start, gather in zip(updated, gathers, strict=True)]
        start = updated if problem.gather_overlaps else gathered
        shape, ends = problem.shape, dict[tuple[bool, int, int], cp_model.IntVar]()
        for key in ((back, s, m) for back in (False, True) for s in self.stages for m in self._passes):
            ends[key] = self._end()
        for stage in self.stages:
            free: Sum = start[stage]
            for step in stage_orders(shape)[stage]:
                key = (step.backward, stage, step.micro_batch)
                source = stage + (1 if step.backward else -1)
                took = self._of_options(stage, "backward_ns" if step.backward else "forward_ns")
                if problem.transfer_blocks and stage != (0 if step.backward else last):
                    took = took + hop
                self.program.add(ends[key] >= free + took)
                if source in self.stages:
                    flight = 0 if problem.transfer_blocks else hop
                    sent = ends[step.backward, source, step.micro_batch]
                    self.program.add(ends[key] >= sent + flight + took)
                free = ends[key]
            if problem.gather_overlaps:
                first = ends[False, stage, 0] >= gathered[stage] + problem.gather_bucket_ns
                self.program.add(first).only_enforce_if(self._is_some(gathers[stage]))
        self._finish(ends, hop)

    @property
    def _passes(self) -> range:
        return range(self.problem.shape.num_micro_batches)

    def _finish(self, ends: dict[tuple[bool, int, int], cp_model.IntVar], hop: int) -> None:
        problem, last, final = self.problem, self.problem.shape.num_stages - 1, self._passes[-1]
        finished: list[Sum] = []
        for stage in self.stages:
            done, reduce = ends[True, stage, final], self._of_classes(stage, "reduce_ns")
            if problem.reduce_overlaps:
                took = self._of_options(stage, "backward_ns")
                if problem.transfer_blocks and stage:
                    took = took + hop
                end = self._end(done)
                some = self._is_some(reduce)
                self.program.add(end >= done - took + reduce).only_enforce_if(some)
                self.program.add(end >= done + problem.reduce_bucket_ns).only_enforce_if(some)
            else:
                end = self._end(done + reduce)
            finished.append(end)
            self.program.add(self.makespan >= end)
        for stage in (0, last):
            self.program.add(self.makespan >= finished[stage] + problem.tied_ns)
