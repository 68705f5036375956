"""The service for the tests of its pages: on a database of its own, with a runner of their choice."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from starlette.testclient import TestClient

from api.app import create_app
from api.jobs.runner import InlineRunner, Runner
from api.jobs.work import Work
from api.settings import Settings
from api.workspace import Workspace

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class IdleRunner:
    """Takes everything in and never answers."""

    def submit(self, work: Work) -> Future[None]:
        """Return a future that nothing completes."""
        del work
        return Future()

    def close(self) -> None:
        """Stop nothing."""


@contextmanager
def page_service(folder: Path, *, answers: bool, max_queued_plans: int = 100) -> Iterator[TestClient]:
    """Start the service; one that ``answers`` does so at once, in this process."""
    settings = Settings(
        database_url=f"sqlite:///{folder / 'meshplan.sqlite3'}", max_queued_plans=max_queued_plans
    )

    def make_runner(settings: Settings, workspace: Workspace, progress_folder: Path) -> Runner:
        del settings, progress_folder
        return InlineRunner(workspace=workspace) if answers else IdleRunner()

    with TestClient(create_app(settings, make_runner=make_runner), headers=BROWSER) as client:
        yield client
