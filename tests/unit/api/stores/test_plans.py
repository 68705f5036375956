from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from api.database import SessionFactory
from api.stores.plans import DatabasePlanStore, PlanKind, PlanState

REQUEST = {"model": {"preset": "llama-3-8b"}, "job": {"global_batch_size": 128, "sequence_length": None}}
OTHER_REQUEST = {"model": {"preset": "llama-3-70b"}, "job": REQUEST["job"]}
RESULT = {"status": "optimal", "prediction": {"step_time_seconds": 1.5e-3, "notes": ["≥ 1", None]}}


@pytest.fixture
def plans(sessions: SessionFactory) -> DatabasePlanStore:
    return DatabasePlanStore(sessions)


def test_a_request_is_read_back_as_it_was_given(plans: DatabasePlanStore) -> None:
    record = plans.get(plans.add(REQUEST, kind=PlanKind.PLAN))
    assert record is not None
    assert record.request == REQUEST
    assert (record.kind, record.state, record.status, record.result) == ("plan", "queued", None, None)


def test_a_result_is_read_back_with_its_keys_in_order(plans: DatabasePlanStore) -> None:
    plan_id = plans.add(REQUEST, kind=PlanKind.PLAN)
    plans.update(plan_id, state=PlanState.DONE, status="optimal", result=RESULT)
    record = plans.get(plan_id)
    assert record is not None
    assert record.result == RESULT
    assert list(record.result) == list(RESULT)
    assert (record.state, record.status) == (PlanState.DONE, "optimal")


def test_a_request_may_be_kept_with_its_result_and_its_id(plans: DatabasePlanStore) -> None:
    plan_id = uuid4()
    kept_id = plans.add(
        REQUEST, kind=PlanKind.EVALUATION, state=PlanState.DONE, status="fits", result=RESULT, plan_id=plan_id
    )
    record = plans.get(plan_id)
    assert kept_id == plan_id
    assert record is not None
    assert (record.id, record.result, record.status) == (plan_id, RESULT, "fits")


def test_an_unknown_id_has_no_record(plans: DatabasePlanStore) -> None:
    assert plans.get(uuid4()) is None


def test_an_unknown_id_cannot_be_updated(plans: DatabasePlanStore) -> None:
    with pytest.raises(KeyError):
        plans.update(uuid4(), state=PlanState.DONE)


def test_equal_requests_have_one_digest_whatever_the_order_of_their_keys(plans: DatabasePlanStore) -> None:
    turned = dict(reversed(REQUEST.items()))
    first, second, other = (
        plans.get(plans.add(request, kind=PlanKind.PLAN)) for request in (REQUEST, turned, OTHER_REQUEST)
    )
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.request_digest == second.request_digest != other.request_digest


def test_recent_records_come_newest_first_and_without_their_results(plans: DatabasePlanStore) -> None:
    ids = [plans.add(REQUEST, kind=PlanKind.PLAN, state=PlanState.DONE, result=RESULT) for _ in range(3)]
    assert [record.id for record in plans.recent(limit=2)] == [ids[2], ids[1]]
    assert all(record.result is None for record in plans.recent())


def test_recent_records_are_of_the_kind_and_state_asked_for(plans: DatabasePlanStore) -> None:
    queued = plans.add(REQUEST, kind=PlanKind.PLAN)
    done = plans.add(REQUEST, kind=PlanKind.PLAN, state=PlanState.DONE)
    evaluation = plans.add(REQUEST, kind=PlanKind.EVALUATION)
    assert {record.id for record in plans.recent(kind=PlanKind.EVALUATION)} == {evaluation}
    assert {record.id for record in plans.recent(kind=PlanKind.PLAN)} == {queued, done}
    assert {record.id for record in plans.recent(state=PlanState.QUEUED)} == {queued, evaluation}


def test_a_record_says_when_it_was_made_in_utc(plans: DatabasePlanStore) -> None:
    record = plans.get(plans.add(REQUEST, kind=PlanKind.PLAN))
    assert record is not None
    assert record.created_at.tzinfo is UTC
    assert abs(datetime.now(tz=UTC) - record.created_at) < timedelta(minutes=1)
