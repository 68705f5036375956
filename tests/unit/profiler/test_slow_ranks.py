from planner.workload.operators import Phase
from profiler.outcomes import Result
from profiler.processes import Failure
from profiler.shapes import KernelShape
from profiler.slow_ranks import LEAST_KERNELS, compared_ranks
from profiler.timing import Timing

PLACES = [{"node": "a", "device": 0}, {"node": "a", "device": 1}, {"node": "b", "device": 0}]


def result(seconds: list[float], *, elems: int) -> Result:
    wanted = KernelShape(operator="add", dtype="fp32", phase=Phase.FORWARD, shape={"elems": elems})
    return Result(wanted=wanted, outcome=Timing.of([[value] for value in seconds]), run="now")


def test_process_that_is_slow_at_most_kernels_is_named() -> None:
    results = [result([1.0, 1.01, 1.2], elems=elems) for elems in range(1, LEAST_KERNELS)]
    results.append(result([9.0, 1.0, 1.2], elems=99))

    ranks = compared_ranks(results, places=PLACES)

    assert [rank["is_slow"] for rank in ranks] == [False, False, True]
    assert ranks[2] == {"rank": 2, "node": "b", "device": 0, "relative_time": 1.1881, "is_slow": True}


def test_slower_of_two_is_compared_with_the_faster() -> None:
    results = [result([1.0, 1.06], elems=elems) for elems in range(1, LEAST_KERNELS + 1)]

    assert [rank["is_slow"] for rank in compared_ranks(results, places=())] == [False, True]


def test_few_kernels_name_nobody() -> None:
    assert compared_ranks([result([1.0, 2.0], elems=1)], places=PLACES) == []


def test_failures_and_lone_processes_say_nothing() -> None:
    failure = Result(
        wanted=result([1.0], elems=1).wanted, outcome=Failure(reason="failed", detail=""), run="now"
    )

    assert compared_ranks([failure, result([1.0], elems=1)] * LEAST_KERNELS, places=PLACES) == []
