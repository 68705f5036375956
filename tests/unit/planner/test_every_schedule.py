"""Small requests held to one schedule beyond 1F1B's family: no plan that can be said beats the answer."""

from dataclasses import replace

import pytest

from planner.plan import Status
from planner.planning import PlanRequest, best_plan
from planner.strategy import ScheduleName
from planner.units import NANOSECONDS_PER_SECOND
from tests.unit.planner.exhaustive import best_of_every_plan
from tests.unit.planner.small_requests import small_request

FRAMEWORKS = ("any", "pytorch", "torchtitan")
SCHEDULES = (
    ScheduleName.ZB_V,
    ScheduleName.ZB_H1,
    ScheduleName.DUALPIPE_V,
    ScheduleName.BREADTH_FIRST,
)


def pipelined(request: PlanRequest, schedule: ScheduleName) -> PlanRequest:
    """Return a request for pipelines of one schedule, with micro-batches enough for most."""
    constraints = replace(
        request.constraints, fixed={"schedule": schedule}, bounds={"pipeline_parallel": (2, 8)}
    )
    return replace(request, constraints=constraints, job=replace(request.job, global_batch_size=8))


def some_requests(count: int) -> list[PlanRequest]:
    found: list[PlanRequest] = []
    number = 0
    while len(found) < count:
        request, number = small_request(number), number + 1
        if request.job.framework in FRAMEWORKS and request.cluster.num_devices > 1:
            found.append(pipelined(request, SCHEDULES[len(found) % len(SCHEDULES)]))
    return found


REQUESTS = some_requests(32)


# Counting covered lines would double its time; what it reaches has tests of its own.
@pytest.mark.no_cover
@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_no_plan_of_the_schedule_beats_the_answer(number: int) -> None:
    asked = REQUESTS[number]
    tried, found = best_of_every_plan(asked), best_plan(asked)
    if tried.makespan_ns is None:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.certificate is not None
    assert round(found.certificate.value * NANOSECONDS_PER_SECOND) == tried.makespan_ns
