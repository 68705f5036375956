"""Amounts of time add up whatever is done with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.tally import CONTENTION_FRACTION, NOTHING, Cause, Family, Tally, booked, exposed, total
from planner.profile import Estimate, Provenance

amounts = st.builds(
    lambda seconds, cause, family, provenance: booked(
        Estimate(seconds=seconds, provenance=provenance, relative_error=0.1), cause=cause, family=family
    ),
    st.floats(0, 1e3),
    st.sampled_from(Cause),
    st.sampled_from(Family),
    st.sampled_from(Provenance),
)


@given(st.lists(amounts))
def test_causes_and_provenance_add_up_to_the_same_whole(tallies: list[Tally]) -> None:
    whole = total(tallies)
    assert whole.seconds == pytest.approx(sum(tally.seconds for tally in tallies))
    assert sum(whole.provenance.values()) == pytest.approx(whole.seconds)


@given(amounts, st.floats(0, 1e3))
def test_communication_beside_work_costs_what_is_not_covered_and_a_share_of_the_rest(
    tally: Tally, work: float
) -> None:
    added = exposed(tally, behind_seconds=work).seconds
    uncovered = max(0.0, tally.seconds - work)
    assert uncovered <= added <= tally.seconds
    assert added == pytest.approx(uncovered + CONTENTION_FRACTION * (tally.seconds - uncovered))


@given(amounts)
def test_recasting_moves_time_between_causes_and_loses_none(tally: Tally) -> None:
    recast = tally.recast(Cause.RECOMPUTE, keep=(Cause.TENSOR_PARALLEL,))
    assert recast.seconds == pytest.approx(tally.seconds)
    assert set(recast.causes) <= {Cause.RECOMPUTE, Cause.TENSOR_PARALLEL}


def test_nothing_takes_no_time() -> None:
    assert (NOTHING + NOTHING).nanoseconds == 0
