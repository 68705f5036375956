import subprocess
import sys
from pathlib import Path

import pytest
from alembic.config import main as alembic
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from api.database import create_database_engine
from api.tables import Base

ROOT = Path(__file__).parents[2]


@pytest.fixture
def migrated_url(monkeypatch: pytest.MonkeyPatch, database_url: str) -> str:
    """The database that the command `alembic` finds in the environment, of each kind in turn."""
    monkeypatch.setenv("MESHPLAN_DATABASE_URL", database_url)
    monkeypatch.chdir(ROOT)
    return database_url


def table_names(database_url: str) -> set[str]:
    engine = create_database_engine(database_url)
    found = set(inspect(engine).get_table_names())
    engine.dispose()
    return found - {"alembic_version"}


def test_the_steps_lead_to_the_tables_and_back(migrated_url: str) -> None:
    for _ in range(2):
        alembic(["upgrade", "head"])
        alembic(["check"])
        assert table_names(migrated_url) == set(Base.metadata.tables)
        alembic(["downgrade", "base"])
        assert table_names(migrated_url) == set()


def test_each_step_can_be_taken_back_and_taken_again(migrated_url: str) -> None:
    steps = list(ScriptDirectory(str(ROOT / "migrations")).walk_revisions())
    for _ in steps:
        alembic(["upgrade", "+1"])
        alembic(["downgrade", "-1"])
        alembic(["upgrade", "+1"])
    alembic(["check"])
    assert table_names(migrated_url) == set(Base.metadata.tables)


@pytest.mark.usefixtures("migrated_url")
def test_a_database_behind_its_tables_is_noticed() -> None:
    alembic(["upgrade", "0001"])
    with pytest.raises(SystemExit):
        alembic(["check"])


def test_there_is_one_newest_step() -> None:
    assert len(ScriptDirectory(str(ROOT / "migrations")).get_heads()) == 1


def test_a_step_is_named_by_its_number() -> None:
    steps = ScriptDirectory(str(ROOT / "migrations")).walk_revisions()
    assert all(Path(step.path).name.startswith(f"{step.revision}_") for step in steps)


def test_services_that_start_at_once_migrate_once(migrated_url: str) -> None:
    upgrade = [sys.executable, "-m", "alembic", "upgrade", "head"]
    services = [subprocess.Popen(upgrade) for _ in range(3)]
    assert [service.wait(timeout=60) for service in services] == [0, 0, 0]
    assert table_names(migrated_url) == set(Base.metadata.tables)
