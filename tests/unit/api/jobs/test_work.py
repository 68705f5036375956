"""Work leaves its result in the store, or the reason why there is none."""

import logging
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from api.jobs.work import Work, perform
from api.profile_library import ProfileLibrary, StoredProfile
from api.schemas.request import EvaluationRequestDocument
from api.stores.plans import PlanKind, PlanRecord, PlanState
from api.workspace import Workspace
from tests.unit.api.services import EVALUATION


def performed(workspace: Workspace, library: ProfileLibrary | None = None, **changes: object) -> PlanRecord:
    request = EvaluationRequestDocument.model_validate({**EVALUATION, **changes}).normalised()
    work = Work(id=uuid4(), kind=PlanKind.EVALUATION, request=request)
    workspace.plans.add(request, kind=work.kind, plan_id=work.id)
    perform(work, plans=workspace.plans, library=library or workspace.library)
    record = workspace.plans.get(work.id)
    assert record is not None
    return record


def test_the_result_is_stored_with_its_status(workspace: Workspace) -> None:
    record = performed(workspace)
    assert (record.state, record.status) == (PlanState.DONE, "fits")
    assert record.result is not None
    assert UUID(record.result["id"]) == record.id


def test_a_request_that_the_planner_refuses_fails_with_its_problem(workspace: Workspace) -> None:
    record = performed(workspace, model={"preset": "gpt-5"})
    assert (record.state, record.status) == (PlanState.FAILED, None)
    assert record.result is not None
    assert record.result["state"] == "failed"
    assert record.result["problem"]["pointer"] == "/model/preset"


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokenLibrary(ProfileLibrary):
    """A library in which something goes wrong."""

    error: Exception

    def for_devices(self, devices: object) -> tuple[StoredProfile, ...]:
        del devices
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [(TimeoutError(), 504, "given up"), (MemoryError(), 507, "more memory")],
)
def test_a_request_that_takes_too_much_fails_with_the_reason(
    workspace: Workspace, error: Exception, status: int, words: str
) -> None:
    record = performed(workspace, BrokenLibrary(store=workspace.profiles, error=error))
    assert record.state is PlanState.FAILED
    assert record.result is not None
    assert record.result["problem"]["status"] == status
    assert words in record.result["problem"]["detail"]


def test_a_mistake_of_ours_fails_and_is_logged(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    mistake = ArithmeticError("seven is not eight")
    record = performed(workspace, BrokenLibrary(store=workspace.profiles, error=mistake))
    assert record.state is PlanState.FAILED
    assert record.result is not None
    assert record.result["problem"]["status"] == 500
    assert "seven" not in str(record.result)
    (error,) = [entry for entry in caplog.records if entry.levelno == logging.ERROR]
    assert str(record.id) in error.getMessage()
    assert "seven is not eight" in str(error.exc_info)
