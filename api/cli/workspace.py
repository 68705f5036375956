"""The database of a command: opened, made ready on first use, closed at the end."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click
from pydantic import ValidationError

from api.cli.outcome import ProblemError
from api.schemas.problem import FaultDocument, ProblemDocument
from api.settings import LogLevel, Settings
from api.workspace import Workspace, migrated_workspace, prepare_workspace


def read_settings() -> Settings:
    """Return the settings of the environment; ProblemError names a variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        faults = [
            FaultDocument(pointer=f"MESHPLAN_{str(entry['loc'][0]).upper()}", detail=entry["msg"])
            for entry in error.errors()
        ]
        raise ProblemError(ProblemDocument.of_faults(faults)) from error


@contextmanager
def opened_workspace(*, everything: bool = False) -> Iterator[Workspace]:
    """Return the stores on the database that the environment names.

    ``everything`` that is shipped is in it, which takes seconds the first time; else as it is used.
    """
    settings = read_settings()
    _set_up_log(settings)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    if everything:
        workspace = prepare_workspace(settings.database_url, on_work=_say_first_use)
    else:
        workspace = migrated_workspace(settings.database_url)
    try:
        yield workspace
    finally:
        workspace.close()


def _set_up_log(settings: Settings) -> None:
    """Write the log to standard error where somebody asks for details; a command says the rest itself."""
    is_wanted = settings.log_level is LogLevel.DEBUG
    logging.basicConfig(level=logging.DEBUG if is_wanted else logging.CRITICAL)


def _say_first_use() -> None:
    click.echo("meshplan: putting the published measurements into the database, once", err=True)
