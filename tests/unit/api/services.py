"""Services for tests, and the runners that they are given."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from api.app import MakeRunner, create_app
from api.jobs.runner import InlineRunner, Runner
from api.jobs.work import Work
from api.settings import Settings
from api.workspace import Workspace

REQUEST: Mapping[str, Any] = {
    "model": {"preset": "gpt-2-124m"},
    "cluster": {"preset": "h100-sxm", "num_devices": 2},
    "job": {"global_batch_size": 16, "sequence_length": 1024},
}
EVALUATION: Mapping[str, Any] = {**REQUEST, "plan": {"data_parallel": 2, "micro_batch_size": 4}}


@dataclass(kw_only=True, slots=True)
class HeldRunner:
    """Takes everything in, and ends with it when the test says so."""

    taken: list[tuple[Work, Future[None]]] = field(default_factory=list)
    is_closed: bool = False

    def submit(self, work: Work) -> Future[None]:
        """Keep the work for the test."""
        ended: Future[None] = Future()
        self.taken.append((work, ended))
        return ended

    def close(self) -> None:
        """Say that it was called; what runs is cut short."""
        self.is_closed = True
        for _, ended in self.taken:
            if not ended.done():
                ended.cancel()
                ended.set_running_or_notify_cancel()


def inline(settings: Settings, workspace: Workspace, progress_folder: Path) -> Runner:
    """Return a runner that answers at once."""
    del settings, progress_folder
    return InlineRunner(workspace=workspace)


def given(runner: Runner) -> MakeRunner:
    """Return what hands a service this runner."""

    def make_runner(settings: Settings, workspace: Workspace, progress_folder: Path) -> Runner:
        del settings, workspace, progress_folder
        return runner

    return make_runner


@contextmanager
def running_service(
    database_url: str,
    *,
    make_runner: MakeRunner,
    **settings: Any,  # noqa: ANN401 - any setting
) -> Iterator[TestClient]:
    """Start a service on a database."""
    app = create_app(Settings(database_url=database_url, **settings), make_runner=make_runner)
    with TestClient(app) as client:
        yield client
