"""How a command ends: its exit code, and what goes wrong told to a person or as a document."""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from sqlalchemy.exc import SQLAlchemyError

from api.schemas.problem import ProblemDocument
from planner.errors import InvalidRequest
from planner.plan import Status

log = logging.getLogger(__name__)


class ExitCode(IntEnum):
    """What a command returns to the shell."""

    DONE = 0
    NOTHING_FITS = 1
    BAD_INPUT = 2
    NO_PLAN_IN_TIME = 3
    UNAVAILABLE = 69
    """As ``sysexits.h`` has it: something that is needed does not answer."""
    MISTAKE = 70
    """As ``sysexits.h`` has it: a mistake in the program."""
    INTERRUPTED = 130
    """As shells have it for Ctrl-C."""


EXIT_CODES: Final = {
    Status.OPTIMAL: ExitCode.DONE,
    Status.FEASIBLE: ExitCode.DONE,
    Status.FITS: ExitCode.DONE,
    Status.INFEASIBLE: ExitCode.NOTHING_FITS,
    Status.DOES_NOT_FIT: ExitCode.NOTHING_FITS,
    Status.ILLEGAL: ExitCode.BAD_INPUT,
    Status.UNKNOWN: ExitCode.NO_PLAN_IN_TIME,
}


NO_OPTIONS: Final[Mapping[str, str]] = {}


class ProblemError(Exception):
    """A command that cannot go on, and why."""

    def __init__(self, problem: ProblemDocument) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@contextmanager
def problems_told(*, as_json: bool, options: Mapping[str, str] = NO_OPTIONS) -> Iterator[None]:
    """End the command with the right code where something is wrong inside, and say what; no traceback.

    ``options`` names the option that fills a field, by the field's JSON pointer.
    """
    try:
        yield
    except ProblemError as error:
        _end(error.problem, as_json=as_json, options=options)
    except InvalidRequest as error:
        _end(ProblemDocument.of_invalid_request(error), as_json=as_json, options=options)
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).splitlines()[0]
        click.echo(f"meshplan: the database does not answer: {cause}", err=True)
        sys.exit(ExitCode.UNAVAILABLE)
    except TimeoutError as error:
        click.echo(f"meshplan: {error}: it did not end at its time limit", err=True)
        sys.exit(ExitCode.NO_PLAN_IN_TIME)
    except MemoryError:
        click.echo("meshplan: this request needs more memory than there is", err=True)
        sys.exit(ExitCode.UNAVAILABLE)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        log.debug("the traceback of this mistake", exc_info=error)
        hint = "please report it; MESHPLAN_LOG_LEVEL=debug shows where"
        click.echo(f"meshplan: a mistake of ours: {type(error).__name__}: {error} ({hint})", err=True)
        sys.exit(ExitCode.MISTAKE)


def write_json(document: Any) -> None:  # noqa: ANN401 - anything that JSON has
    """Write a document, and nothing else, on standard output."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def _end(problem: ProblemDocument, *, as_json: bool, options: Mapping[str, str]) -> None:
    if as_json:
        write_json(problem.model_dump(mode="json", exclude_none=True))
    else:
        _write(problem, options)
    sys.exit(ExitCode.BAD_INPUT)


def _write(problem: ProblemDocument, options: Mapping[str, str]) -> None:
    """Write each fault on lines of its own, on standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not problem.errors:
        console.print(f"[bold red]{escape(problem.title)}[/]: {escape(problem.detail)}")
    for fault in problem.errors:
        where = f"[bold]{escape(fault.pointer)}[/]: " if fault.pointer else ""
        console.print(f"[bold red]{escape(problem.title)}[/]: {where}{escape(fault.detail)}")
        if fault.pointer in options:
            console.print(f"  [dim]by option:[/] {escape(options[fault.pointer])}")
        if fault.nearest_legal:
            words = ", ".join(map(_shown, fault.nearest_legal))
            console.print(f"  [dim]nearest legal:[/] {escape(words)}")


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
