from pathlib import Path

import pytest
from pydantic import ValidationError

from api.settings import LogLevel, Settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"MESHPLAN_{name.upper()}", raising=False)


def test_the_default_database_is_one_file_for_every_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = Settings().database_url
    monkeypatch.chdir(tmp_path)
    assert Settings().database_url == before
    assert before.startswith("sqlite:////")
    assert before.endswith("/meshplan/meshplan.sqlite3")


def test_the_service_listens_to_this_machine_alone_unless_told_otherwise() -> None:
    assert Settings().host == "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("database_url", "postgresql://database/meshplan", "postgresql://database/meshplan"),
        ("port", "80", 80),
        ("log_level", "debug", LogLevel.DEBUG),
        ("max_body_bytes", "1000", 1000),
        ("max_wait_seconds", "0", 0.0),
    ],
)
def test_the_environment_sets_a_field_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: object
) -> None:
    monkeypatch.setenv(f"MESHPLAN_{name.upper()}", value)
    assert getattr(Settings(), name) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", "70000"), ("plan_workers", "0"), ("max_body_bytes", "-1"), ("log_level", "loud")],
)
def test_nonsense_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"MESHPLAN_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        Settings()


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]  # what the test is about
