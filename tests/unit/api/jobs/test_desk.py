"""The front desk keeps the store true, whatever becomes of the workers."""

from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from uuid import uuid4

import pytest

from api.jobs.desk import FrontDesk, QueueFullError
from api.jobs.progress import ProgressFiles
from api.jobs.work import Work
from api.schemas.request import EvaluationRequestDocument
from api.stores.plans import PlanKind, PlanState
from api.workspace import Workspace
from planner.planning import Progress
from tests.unit.api.services import EVALUATION, HeldRunner

NORMALISED = EvaluationRequestDocument.model_validate(EVALUATION).normalised()
DIED = BrokenProcessPool("a worker died")


@pytest.fixture
def runner() -> HeldRunner:
    return HeldRunner()


@pytest.fixture
def progress(tmp_path: Path) -> ProgressFiles:
    return ProgressFiles(folder=tmp_path)


@pytest.fixture
def desk(workspace: Workspace, runner: HeldRunner, progress: ProgressFiles) -> FrontDesk:
    return FrontDesk(plans=workspace.plans, runner=runner, progress=progress, max_waiting=2)


def state_of(workspace: Workspace, work: Work) -> PlanState:
    record = workspace.plans.get(work.id)
    assert record is not None
    return record.state


def test_a_request_is_stored_before_anybody_works_on_it(
    desk: FrontDesk, runner: HeldRunner, workspace: Workspace
) -> None:
    ticket = desk.take(NORMALISED, kind=PlanKind.PLAN)
    record = workspace.plans.get(ticket.id)
    assert record is not None
    assert (record.state, record.request) == (PlanState.QUEUED, NORMALISED)
    assert [work.id for work, _ in runner.taken] == [ticket.id]
    assert not ticket.done.done()


def test_the_ticket_is_done_with_the_work(desk: FrontDesk, runner: HeldRunner) -> None:
    ticket = desk.take(NORMALISED, kind=PlanKind.PLAN)
    runner.taken[0][1].set_result(None)
    assert ticket.done.done()


def test_a_waiting_request_says_how_far_it_is(
    desk: FrontDesk, workspace: Workspace, progress: ProgressFiles
) -> None:
    ticket = desk.take(NORMALISED, kind=PlanKind.PLAN)
    record = workspace.plans.get(ticket.id)
    assert record is not None
    assert desk.document(record)["progress"] is None
    progress.writer(ticket.id)(
        Progress(best_seconds=2.0, lower_bound_seconds=1.0, meshes_left=3, meshes_total=9)
    )
    document = desk.document(record)
    assert document["state"] == "queued"
    assert document["progress"]["meshes_left"] == 3


def test_more_than_may_wait_are_refused_until_some_are_done(desk: FrontDesk, runner: HeldRunner) -> None:
    desk.take(NORMALISED, kind=PlanKind.PLAN)
    desk.take(NORMALISED, kind=PlanKind.PLAN)
    with pytest.raises(QueueFullError, match="2 requests wait"):
        desk.take(NORMALISED, kind=PlanKind.PLAN)
    runner.taken[0][1].set_result(None)
    desk.take(NORMALISED, kind=PlanKind.PLAN)


def test_a_request_that_had_not_begun_when_its_worker_died_is_tried_again(
    desk: FrontDesk, runner: HeldRunner, workspace: Workspace
) -> None:
    ticket = desk.take(NORMALISED, kind=PlanKind.PLAN)
    runner.taken[0][1].set_exception(DIED)
    assert len(runner.taken) == 2
    assert not ticket.done.done()
    runner.taken[1][1].set_exception(DIED)
    assert len(runner.taken) == 2
    assert ticket.done.done()
    assert state_of(workspace, runner.taken[0][0]) is PlanState.FAILED


def test_a_request_that_took_its_worker_down_fails(
    desk: FrontDesk, runner: HeldRunner, workspace: Workspace
) -> None:
    ticket = desk.take(NORMALISED, kind=PlanKind.PLAN)
    workspace.plans.update(ticket.id, state=PlanState.RUNNING)
    runner.taken[0][1].set_exception(DIED)
    record = workspace.plans.get(ticket.id)
    assert record is not None
    assert record.state is PlanState.FAILED
    document = desk.document(record)
    assert "out of memory" in document["problem"]["detail"]
    assert document["request"] == NORMALISED


def test_what_has_no_result_when_the_service_ends_is_cancelled(
    desk: FrontDesk, runner: HeldRunner, workspace: Workspace
) -> None:
    ticket = desk.take(NORMALISED, kind=PlanKind.PLAN)
    desk.close()
    assert runner.is_closed
    assert state_of(workspace, runner.taken[0][0]) is PlanState.CANCELLED
    assert ticket.done.done()


def test_what_an_earlier_service_left_is_cancelled(desk: FrontDesk, workspace: Workspace) -> None:
    left = {
        state: workspace.plans.add(NORMALISED, kind=PlanKind.PLAN, state=state)
        for state in (PlanState.QUEUED, PlanState.RUNNING)
    }
    done = workspace.plans.add(
        NORMALISED, kind=PlanKind.PLAN, state=PlanState.DONE, result={"id": "x"}, plan_id=uuid4()
    )
    desk.cancel_abandoned()
    for plan_id in left.values():
        record = workspace.plans.get(plan_id)
        assert record is not None
        assert record.state is PlanState.CANCELLED
    record = workspace.plans.get(done)
    assert record is not None
    assert record.state is PlanState.DONE
