"""CPU milliseconds of one step: played with repeated rounds left out, and replayed in full."""

import time
from collections.abc import Callable, Iterator

from benchmarks.search import Case
from planner.cost.pipeline import Assignment, PipelineProblem, chunk_costs
from planner.cost.replay import replay
from planner.cost.steady import play_step

REPEATS = 5


def cases() -> Iterator[Case]:
    """Yield layouts from small to the largest that a search replays."""
    for stages, virtual_stages, micro_batches in (
        (4, 2, 64),
        (8, 6, 96),
        (64, 1, 512),
        (16, 2, 1024),
        (16, 1, 1024),
    ):
        yield Case(stages=stages, virtual_stages=virtual_stages, micro_batches=micro_batches, layers=128)


def uneven(problem: PipelineProblem) -> Assignment:
    """Return one, two or three layers for every chunk, in turn."""
    return tuple((1 + (7 * chunk) % 3,) for chunk in range(problem.shape.num_chunks))


def milliseconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    started = time.process_time()
    work()
    return 1e3 * (time.process_time() - started)


def line(case: Case) -> str:
    """Return a case's line: the first call, the median of later ones, the replay in full."""
    problem = case.problem()
    costs = chunk_costs(problem, uneven(problem))
    first = milliseconds(lambda: play_step(problem, costs))
    later = sorted(milliseconds(lambda: play_step(problem, costs)) for _ in range(REPEATS))
    replay(problem, costs)
    full = milliseconds(lambda: replay(problem, costs))
    return (
        f"{case.stages:>3} {case.virtual_stages:>3} {case.micro_batches:>5}"
        f" {first:>9.2f} {later[REPEATS // 2]:>9.2f} {full:>9.2f}"
    )


def main() -> None:
    """Print a table of all cases."""
    print(f"{'p':>3} {'v':>3} {'m':>5} {'first ms':>9} {'later ms':>9} {'full ms':>9}")
    for case in cases():
        print(line(case), flush=True)


if __name__ == "__main__":
    main()
