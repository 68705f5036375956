"""The command as a whole: cheap to ask for its version, helpful to a stranger."""

import subprocess
import sys

import pytest

from api.cli import COMMANDS
from api.version import VERSION
from tests.unit.api.cli.commands import Command

HEAVY = ("ortools", "numpy", "fastapi", "sqlalchemy", "pydantic", "rich", "torch")


def test_the_version_is_told_without_loading_anything() -> None:
    code = (
        "import sys; from api.cli import group; group.main(['--version'], standalone_mode=False); "
        f"sys.exit(sum(module in sys.modules for module in {HEAVY!r}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.stdout.strip() == f"meshplan {VERSION}" or VERSION in ended.stdout
    assert ended.returncode == 0, ended.stderr


def test_help_names_every_command_and_the_exit_codes(meshplan: Command) -> None:
    output = meshplan("--help").output
    for name in COMMANDS:
        assert name in output
    assert "Exit codes: 0 a plan" in output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples(meshplan: Command, name: str) -> None:
    ended = meshplan(name, "--help")
    assert ended.code == 0
    assert "Examples:" in ended.output
    assert f"meshplan {name}" in ended.output


@pytest.mark.parametrize(
    "words",
    [
        (name, command)
        for name, commands in {
            "models": ("list", "show"),
            "clusters": ("list", "show"),
            "devices": ("list", "show"),
            "frameworks": ("list", "show"),
            "profiles": ("list", "show", "import", "delete"),
            "trials": ("list", "show"),
        }.items()
        for command in commands
    ],
)
def test_every_command_of_a_group_has_an_example(meshplan: Command, words: tuple[str, str]) -> None:
    output = meshplan(*words, "--help").output
    assert f"Example: meshplan {words[0]} {words[1]}" in output


def test_a_misspelt_command_gets_the_nearest(meshplan: Command) -> None:
    ended = meshplan("plna")
    assert ended.code == 2
    assert "Did you mean plan" in ended.errors


def test_an_unknown_option_is_bad_input(meshplan: Command) -> None:
    assert meshplan("plan", "--modle", "x").code == 2
