"""Requests answered by real worker processes."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.jobs.desk import FrontDesk
from api.jobs.progress import ProgressFiles
from api.jobs.runner import PoolRunner, WorkerSettings
from api.schemas.request import EvaluationRequestDocument
from api.stores.plans import PlanKind, PlanState
from api.workspace import Workspace, migrated_workspace

REQUEST = {
    "model": {"preset": "gpt-2-124m"},
    "cluster": {"preset": "h100-sxm", "num_devices": 2},
    "job": {"global_batch_size": 16, "sequence_length": 1024},
    "plan": {"data_parallel": 2, "micro_batch_size": 4},
}
NORMALISED = EvaluationRequestDocument.model_validate(REQUEST).normalised()
SECONDS = 60


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'meshplan.sqlite3'}"


@pytest.fixture
def workspace(url: str) -> Iterator[Workspace]:
    workspace = migrated_workspace(url)
    yield workspace
    workspace.close()


@pytest.fixture
def desk(workspace: Workspace, url: str, tmp_path: Path) -> Iterator[FrontDesk]:
    runner = PoolRunner(WorkerSettings(database_url=url, progress_folder=tmp_path), num_searches=1)
    desk = FrontDesk(
        plans=workspace.plans, runner=runner, progress=ProgressFiles(folder=tmp_path), max_waiting=10
    )
    yield desk
    desk.close()


def state_after(desk: FrontDesk, workspace: Workspace) -> PlanState:
    ticket = desk.take(NORMALISED, kind=PlanKind.EVALUATION)
    ticket.done.result(timeout=SECONDS)
    record = workspace.plans.get(ticket.id)
    assert record is not None
    return record.state


def test_workers_answer_are_replaced_when_they_die_and_end_with_the_desk(
    desk: FrontDesk, workspace: Workspace
) -> None:
    assert state_after(desk, workspace) is PlanState.DONE
    for worker in multiprocessing.active_children():
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join(SECONDS)
    assert state_after(desk, workspace) is PlanState.DONE
    desk.close()
    assert multiprocessing.active_children() == []
