"""Connections to the database, and the migrations that bring it up to date."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from sqlite3 import Connection as SqliteConnection

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.orm import Session, sessionmaker

MIGRATIONS = "migrations:"
"""The package of the migrations, by name: it stands on this one and is never imported from here."""

LOCK_TIMEOUT_MILLISECONDS = 30_000
"""How long a writer waits for another one on SQLite, which has one at a time."""

SessionFactory = sessionmaker[Session]


def create_database_engine(database_url: str) -> Engine:
    """Return an engine for an SQLite file, made with its folder when missing, or a PostgreSQL server."""
    url = _with_driver(make_url(database_url))
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def create_session_factory(engine: Engine) -> SessionFactory:
    """Return what makes the sessions of the stores; their rows stay readable after a commit."""
    return sessionmaker(engine, expire_on_commit=False)


@contextmanager
def writing(sessions: SessionFactory) -> Iterator[Session]:
    """Open a session that is to write: committed at the end, rolled back on an error."""
    with sessions.begin() as session:
        session.connection(execution_options={"writes": True})
        yield session


def migrate(engine: Engine) -> None:
    """Bring the database to the newest shape; a second call changes nothing, and loads no Alembic.

    Safe when several processes start at once: one migrates while the others wait.
    """
    if is_migrated(engine):
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", MIGRATIONS)
    config.attributes["engine"] = engine
    command.upgrade(config, "head")


def is_migrated(engine: Engine) -> bool:
    """Whether the database has the tables of this version; raises SQLAlchemyError where it is away."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return False
        current = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return current == [newest_revision()]


@cache
def newest_revision() -> str:
    """Return the revision of this version's tables: that of the last step, whose file begins with it."""
    steps = (resources.files(MIGRATIONS.removesuffix(":")) / "versions").iterdir()
    return max(step.name.split("_")[0] for step in steps if step.name.endswith(".py"))


def _with_driver(url: URL) -> URL:
    """Name the one PostgreSQL driver that is installed, whichever spelling the environment has."""
    if url.drivername in {"postgres", "postgresql"}:
        return url.set(drivername="postgresql+psycopg")
    return url


def _prepare_sqlite(connection: SqliteConnection, _record: object) -> None:
    """Set what SQLite forgets between connections."""
    # Otherwise the driver begins transactions by itself, and none for a change of the tables.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {LOCK_TIMEOUT_MILLISECONDS}",
        "journal_mode = WAL",  # readers go on while one writes
        "synchronous = NORMAL",  # safe with a write-ahead log, and does not wait for the disk at each commit
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction, with the lock for writing at once where the caller says that it will write.

    A reader that becomes a writer later is refused by SQLite, without waiting, when another wrote in between.
    """
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
