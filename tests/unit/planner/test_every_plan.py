"""Whole requests over everything that a search decides: no plan that can be said beats the answer."""

import pytest

from planner.plan import Status
from planner.planning import best_plan
from planner.units import NANOSECONDS_PER_SECOND
from tests.unit.planner.exhaustive import best_of_every_plan
from tests.unit.planner.small_requests import small_request


# Counting covered lines would double its time; what it reaches has tests of its own.
@pytest.mark.no_cover
@pytest.mark.parametrize("number", range(500))
def test_no_plan_of_a_small_request_beats_the_answer(number: int) -> None:
    request = small_request(number)
    tried, found = best_of_every_plan(request), best_plan(request)
    if tried.makespan_ns is None:
        assert (found.status, found.plan) == (Status.INFEASIBLE, None)
        return
    assert found.certificate is not None
    assert found.status is Status.OPTIMAL
    assert found.certificate.proven_optimal
    assert round(found.certificate.value * NANOSECONDS_PER_SECOND) == tried.makespan_ns, tried
