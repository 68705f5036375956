"""Databases that have been seeded once, and services on them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from api.workspace import Workspace, open_workspace, prepare_workspace
from tests.unit.api.services import inline, running_service


@pytest.fixture(scope="session")
def seeded_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with everything that is shipped; to be copied."""
    path = tmp_path_factory.mktemp("seeded") / "meshplan.sqlite3"
    prepare_workspace(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def seeded_url(seeded_file: Path, tmp_path: Path) -> str:
    """The URL of a database of the test's own, with everything that is shipped."""
    copy = tmp_path / "meshplan.sqlite3"
    shutil.copy(seeded_file, copy)
    return f"sqlite:///{copy}"


@pytest.fixture
def workspace(seeded_url: str) -> Iterator[Workspace]:
    """The stores on a database of the test's own."""
    workspace = open_workspace(seeded_url)
    yield workspace
    workspace.close()


@pytest.fixture
def client(seeded_url: str) -> Iterator[TestClient]:
    """A client of a service that answers at once."""
    with running_service(seeded_url, make_runner=inline) as client:
        yield client
