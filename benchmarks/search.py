"""CPU seconds of solving single layouts exactly, by stages, virtual stages, layers and options."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from planner.cost.pipeline import FixedPart, LayerClass, LayerOption, PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.search.master import Solution, solve
from planner.search.point_master import solve_evenly
from planner.search.solver import WorkLimits
from planner.strategy import Recompute, RecomputeMode, ScheduleName

GIB = 2**30
NONE = LayerOption(
    recompute=Recompute(),
    forward_ns=2_103_331,
    backward_ns=4_201_777,
    saved_bytes=163_000_000,
    working_bytes=500_000_000,
)
SELECTIVE = LayerOption(
    recompute=Recompute(mode=RecomputeMode.SELECTIVE, modules=("core_attention",)),
    forward_ns=2_103_331,
    backward_ns=4_611_123,
    saved_bytes=87_000_000,
    working_bytes=500_000_000,
)
FULL = LayerOption(
    recompute=Recompute(mode=RecomputeMode.FULL),
    forward_ns=2_103_331,
    backward_ns=6_300_107,
    saved_bytes=6_000_000,
    working_bytes=1_000_000_000,
)
OPTIONS = (NONE, SELECTIVE, FULL)
"""One layer of a 175B model on one device of eight, about as published kernels run it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One layout to solve: its pipeline, its layers, the options of a layer and the memory for it all."""

    stages: int
    virtual_stages: int
    micro_batches: int
    layers: int
    num_options: int = 1
    limit_gib: float = 75.0

    def problem(self) -> PipelineProblem:
        """Return the layout's problem: a head of 0.8 layers, overlapped reduction, waiting gathers."""
        name = ScheduleName.INTERLEAVED if self.virtual_stages > 1 else ScheduleName.ONE_FORWARD_ONE_BACKWARD
        return PipelineProblem(
            shape=PipelineShape(
                schedule=name,
                num_stages=self.stages,
                virtual_stages=self.virtual_stages,
                num_micro_batches=self.micro_batches,
            ),
            classes=(
                LayerClass(
                    options=OPTIONS[: self.num_options],
                    static_bytes=1_000_000_000,
                    optimizer_ns=1_200_000,
                    gather_ns=3_100_000,
                    reduce_ns=6_200_000,
                ),
            ),
            sequence=(0,) * self.layers,
            every=FixedPart(forward_ns=100_000, backward_ns=100_000),
            first=FixedPart(
                forward_ns=120_011, backward_ns=90_007, static_bytes=800_000_000, optimizer_ns=900_000
            ),
            last=FixedPart(
                forward_ns=1_700_003, backward_ns=3_400_001, static_bytes=800_000_000, optimizer_ns=900_000
            ),
            transfer_ns=350_000,
            transfer_blocks=self.virtual_stages > 1,
            gather_overlaps=False,
            reduce_overlaps=True,
            gather_bucket_ns=300_000,
            reduce_bucket_ns=300_000,
            barrier_ns=4_000_000,
            tied_ns=2_000_000,
            base_bytes=3_000_000_000,
            limit_bytes=int(self.limit_gib * GIB),
            empty_ends=False,
        )


def cases() -> Iterator[Case]:
    """Yield one-option layouts by stages, then interleaved ones, then three options with tight memory."""
    for stages, layers, micro_batches in (
        (4, 32, 64),
        (8, 96, 192),
        (8, 80, 64),
        (16, 126, 64),
        (32, 96, 64),
        (64, 128, 512),
        (64, 126, 64),
    ):
        yield Case(stages=stages, virtual_stages=1, micro_batches=micro_batches, layers=layers)
    for stages, virtual_stages, layers, micro_batches in (
        (4, 2, 32, 64),
        (8, 2, 80, 64),
        (8, 5, 80, 64),
        (8, 6, 96, 192),
        (8, 12, 96, 192),
        (16, 3, 96, 64),
        (64, 2, 128, 512),
    ):
        yield Case(stages=stages, virtual_stages=virtual_stages, micro_batches=micro_batches, layers=layers)
    for stages, virtual_stages, layers, micro_batches, limit in (
        (1, 1, 32, 64, 36.0),
        (2, 1, 32, 64, 24.0),
        (8, 1, 96, 128, 26.0),
        (16, 1, 96, 128, 22.0),
        (16, 1, 126, 64, 24.0),
        (64, 1, 128, 512, 18.0),
        (4, 2, 32, 64, 20.0),
        (8, 3, 96, 64, 30.0),
        (8, 12, 96, 192, 32.0),
    ):
        yield Case(
            stages=stages,
            virtual_stages=virtual_stages,
            micro_batches=micro_batches,
            layers=layers,
            num_options=3,
            limit_gib=limit,
        )


def main() -> None:
    """Print a table: the case, CPU seconds, the step in seconds and whether it is proven."""
    # The solver is loaded when it is first needed: not part of any layout's time.
    solve(Case(stages=2, virtual_stages=1, micro_batches=8, layers=5).problem())
    solve(Case(stages=4, virtual_stages=1, micro_batches=8, layers=17).problem())
    print(f"{'p':>3} {'v':>3} {'m':>4} {'L':>4} {'options':>7} {'CPU s':>8}  step")
    for case in cases():
        solver = solve if case.virtual_stages == 1 else solve_evenly
        started = time.process_time()
        solved = solver(case.problem(), limits=WorkLimits(deterministic_seconds=10.0))
        spent = time.process_time() - started
        found = (
            f"{solved.makespan_ns / 1e9:.6f} s, {'proven' if solved.is_proven else 'not proven'}"
            if isinstance(solved, Solution)
            else "does not fit"
        )
        print(
            f"{case.stages:>3} {case.virtual_stages:>3} {case.micro_batches:>4} {case.layers:>4}"
            f" {case.num_options:>7} {spent:>8.3f}  {found}",
            flush=True,
        )


if __name__ == "__main__":
    main()
