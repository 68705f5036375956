from uuid import uuid4

import pytest

from api.database import SessionFactory
from api.stores.trials import DatabaseTrialStore

REPORT = {"step_time": {"predicted_seconds": 1.5, "measured_seconds": 1.25}, "device": "cpu-a-1c"}


@pytest.fixture
def trials(sessions: SessionFactory) -> DatabaseTrialStore:
    return DatabaseTrialStore(sessions)


def test_a_trial_is_read_back_as_it_was_kept(trials: DatabaseTrialStore) -> None:
    result_id = uuid4()
    record = trials.get(trials.add(REPORT, result_id=result_id, device="cpu-a-1c"))
    assert record is not None
    assert (record.report, record.result_id, record.device) == (REPORT, result_id, "cpu-a-1c")
    assert list(record.report) == list(REPORT)


def test_an_unknown_id_has_no_trial(trials: DatabaseTrialStore) -> None:
    assert trials.get(uuid4()) is None


def test_recent_trials_come_newest_first(trials: DatabaseTrialStore) -> None:
    ids = [trials.add(REPORT, result_id=None, device="cpu-a-1c") for _ in range(3)]
    assert [record.id for record in trials.recent(limit=2)] == [ids[2], ids[1]]
