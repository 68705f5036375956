"""How CPU time grows: plans by devices and layers, single layouts by stages and ways to run a layer."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Final

from benchmarks.search import Case
from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, SolverLimits
from planner.planning import PlanRequest, best_plan
from planner.profile import builtin_profile
from planner.search.master import Solution, solve
from planner.search.solver import WorkLimits
from planner.workload.presets import preset_workload

CLUSTER: Final = "h100-sxm"
DEVICES: Final = (8, 32, 128, 512, 2048, 8192, 32_768, 131_072)
LAYERS: Final = (8, 16, 32, 64, 128, 256)
STAGES: Final = (1, 2, 4, 8, 16, 32, 64)
WAYS: Final = (1, 2, 3)
REPEATS: Final = 3
LIMITS: Final = SolverLimits(time_limit_seconds=300)
LONG_SECONDS: Final = 10.0
SHORTEST_SECONDS: Final = 0.001
"""What a bar of one character stands for; every further one is a quarter more."""
STEP: Final = 1.25
WIDTH: Final = 55


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One size, the CPU seconds that it takes, and how the work ended."""

    size: int
    cpu_seconds: float
    end: str


def measured(size: int, work: Callable[[], str]) -> Point:
    """Return the median of a few runs, of one where that takes long."""
    seconds, end = list[float](), ""
    while len(seconds) < REPEATS and sum(seconds) < LONG_SECONDS:
        started = time.process_time()
        end = work()
        seconds.append(time.process_time() - started)
    return Point(size=size, cpu_seconds=median(seconds), end=end)


def plan(*, devices: int, layers: int, batch: int) -> str:
    """Plan Llama-3-70B at some depth and return how the search ended."""
    request = PlanRequest(
        workload=preset_workload("llama-3-70b").with_num_layers(layers),
        cluster=cluster_from_preset(CLUSTER, devices),
        job=Job(global_batch_size=batch, sequence_length=4096),
        constraints=Constraints(),
        solver=LIMITS,
        profiles=(builtin_profile(f"{CLUSTER}/published"),),
    )
    found = best_plan(request)
    proof = found.certificate
    return found.status if proof is None else f"{found.status}, {proof.meshes.total:,} layouts"


def layout(*, stages: int, ways: int) -> str:
    """Solve one layout of 128 layers and return how it ended; memory binds where there is a choice."""
    case = Case(
        stages=stages,
        virtual_stages=1,
        micro_batches=4 * stages,
        layers=128,
        num_options=ways,
        limit_gib=75.0 if ways == 1 else 22.0 + 140.0 / stages,
    )
    solved = solve(case.problem(), limits=WorkLimits(deterministic_seconds=10.0))
    if not isinstance(solved, Solution):
        return "does not fit"
    return "proven" if solved.is_proven else "not proven"


def by_devices() -> Iterator[Point]:
    """Yield one model on more and more devices, its batch the same."""
    for devices in DEVICES:
        yield measured(devices, lambda: plan(devices=devices, layers=16, batch=16_384))  # noqa: B023 - called at once


def by_layers() -> Iterator[Point]:
    """Yield deeper and deeper models on 512 devices."""
    for layers in LAYERS:
        yield measured(layers, lambda: plan(devices=512, layers=layers, batch=1024))  # noqa: B023 - called at once


def by_stages() -> Iterator[Point]:
    """Yield one layout after the other with more stages."""
    for stages in STAGES:
        yield measured(stages, lambda: layout(stages=stages, ways=1))  # noqa: B023 - called at once


def by_ways() -> Iterator[Point]:
    """Yield one layout of 16 stages with more ways to run a layer."""
    for ways in WAYS:
        yield measured(ways, lambda: layout(stages=16, ways=ways))  # noqa: B023 - called at once


def line(point: Point) -> str:
    """Return a size's line with a bar as long as the logarithm of its time."""
    length = round(log(point.cpu_seconds / SHORTEST_SECONDS) / log(STEP)) + 1
    return f"{point.size:>10,} {point.cpu_seconds:>8.3f} {'#' * max(length, 1):<{WIDTH}} {point.end}"


def main() -> None:
    """Print a table for each thing that may grow."""
    # The solver and the tables of kernels are loaded when they are first needed: no part of growth.
    plan(devices=8, layers=4, batch=64)
    layout(stages=2, ways=1)
    growths = {"devices": by_devices, "layers": by_layers, "stages": by_stages, "ways": by_ways}
    for name, points in growths.items():
        print(f"\n{name:>10} {'CPU s':>8} each # a quarter longer")
        for point in points():
            print(line(point), flush=True)


if __name__ == "__main__":
    main()
