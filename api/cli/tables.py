"""Plain tables on standard output: aligned columns, no lines, easy to cut."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH: Final = 200
"""Columns where standard output is no terminal: names stay whole, and a reader of the file scrolls."""


def output_console() -> Console:
    """Return what writes to standard output for a person, or for a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPED_WIDTH)


def write_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows below their headers; a cell that is too long for the terminal goes on in the next line."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(header, header_style="bold", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    output_console().print(table)
