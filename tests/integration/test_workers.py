"""Requests answered by real worker processes."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from api.jobs.runner import PoolRunner, WorkerSettings
from api.jobs.work import Work
from api.schemas.request import EvaluationRequestDocument
from api.stores.plans import PlanKind, PlanState
from api.workspace import Workspace, prepare_workspace

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
    workspace = prepare_workspace(url)
    yield workspace
    workspace.close()


@pytest.fixture
def runner(workspace: Workspace, url: str, tmp_path: Path) -> Iterator[PoolRunner]:
    del workspace  # the database is ready
    runner = PoolRunner(WorkerSettings(database_url=url, progress_folder=tmp_path), num_searches=1)
    yield runner
    runner.close()


def state_after(runner: PoolRunner, workspace: Workspace) -> PlanState:
    work = Work(id=uuid4(), kind=PlanKind.EVALUATION, request=NORMALISED)
    workspace.plans.add(NORMALISED, kind=work.kind, plan_id=work.id)
    runner.submit(work).result(timeout=SECONDS)
    record = workspace.plans.get(work.id)
    assert record is not None
    return record.state


def test_workers_answer_and_are_replaced_when_they_die(runner: PoolRunner, workspace: Workspace) -> None:
    assert state_after(runner, workspace) is PlanState.DONE
    for worker in multiprocessing.active_children():
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join(SECONDS)
    assert state_after(runner, workspace) is PlanState.DONE


def test_nothing_is_left_running(runner: PoolRunner, workspace: Workspace) -> None:
    assert state_after(runner, workspace) is PlanState.DONE
    runner.close()
    assert multiprocessing.active_children() == []
