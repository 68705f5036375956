from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text

from api.database import (
    SessionFactory,
    create_database_engine,
    create_session_factory,
    is_migrated,
    migrate,
    writing,
)
from api.tables import DeviceRow


def add_device(sessions: SessionFactory, name: str) -> None:
    with writing(sessions) as session:
        # Read first: a transaction that turns from reading to writing is what SQLite refuses.
        memory_bytes = 1 + len(session.scalars(select(DeviceRow)).all())
        session.add(DeviceRow(name=name, memory_bytes=memory_bytes, details={}))


def device_names(sessions: SessionFactory) -> set[str]:
    with sessions() as session:
        return set(session.scalars(select(DeviceRow.name)))


def fail_after_adding(sessions: SessionFactory) -> None:
    with writing(sessions) as session:
        session.add(DeviceRow(name="half done", memory_bytes=1, details={}))
        session.flush()
        raise RuntimeError


@pytest.mark.parametrize("drivername", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_takes_the_installed_driver(drivername: str) -> None:
    engine = create_database_engine(f"{drivername}://somebody@database/meshplan")
    assert engine.url.drivername == "postgresql+psycopg"
    assert engine.url.host == "database"


def test_the_folder_of_an_sqlite_file_is_made(tmp_path: Path) -> None:
    file = tmp_path / "not" / "there" / "meshplan.sqlite3"
    engine = create_database_engine(f"sqlite:///{file}")
    migrate(engine)
    engine.dispose()
    assert file.exists()


def test_sqlite_keeps_a_write_ahead_log_and_foreign_keys(sqlite_url: str) -> None:
    engine = create_database_engine(sqlite_url)
    with engine.connect() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1
    engine.dispose()


def test_an_error_takes_back_what_was_written(sessions: SessionFactory) -> None:
    with pytest.raises(RuntimeError):
        fail_after_adding(sessions)
    assert device_names(sessions) == set()


def test_writers_wait_for_each_other(sessions: SessionFactory) -> None:
    wanted = {f"device {number}" for number in range(40)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: add_device(sessions, name), wanted))
    assert device_names(sessions) == wanted


def test_readers_go_on_while_another_writes(sessions: SessionFactory) -> None:
    add_device(sessions, "before")
    with writing(sessions) as session:
        session.add(DeviceRow(name="after", memory_bytes=1, details={}))
        session.flush()
        assert device_names(sessions) == {"before"}
    assert device_names(sessions) == {"before", "after"}


def test_migrating_again_changes_nothing(engine: Engine) -> None:
    sessions = create_session_factory(engine)
    add_device(sessions, "kept")
    migrate(engine)
    assert device_names(sessions) == {"kept"}


def test_the_tables_of_another_version_are_told_apart(engine: Engine) -> None:
    assert is_migrated(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    assert not is_migrated(engine)
