"""One published run as a row of a CSV file, its cells read by column; what they leave unsaid is noted."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from typing import Final, TypeVar

from planner.errors import InvalidRequest, PlannerError

Value = TypeVar("Value")

YES: Final = frozenset({"true", "yes", "1"})
NO: Final = frozenset({"false", "no", "0"})

MEASURED_COLUMNS: Final = frozenset(
    {"step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "peak_mem_gib", "oom"}
)
"""What was observed of a run; the other columns say what was run."""
WITNESS_COLUMNS: Final = frozenset({"source", "source_ref", "params_b", "notes"})
"""Who says it, and remarks: two rows that differ in these alone are one configuration."""


class UnusableRow(PlannerError):  # noqa: N818 - reads as what happened
    """A row that cannot be evaluated; the message is the reason under which it is counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One run as its file says it; ``line`` counts from 1, the header included."""

    file: str
    line: int
    cells: Mapping[str, str] = field(hash=False)

    def text(self, column: str) -> str:
        """Return a cell without blanks around it; empty where the row or the file does not say."""
        return self.cells.get(column, "").strip()

    def number(self, column: str) -> float | None:
        """Return a cell as a number from zero up; UnusableRow where it says something else."""
        text = self.text(column)
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = nan
        if not 0 <= number < inf:
            raise UnusableRow(f"{column} is no number from zero up")
        return number

    def whole(self, column: str) -> int | None:
        """Return a cell as a whole number from zero up; UnusableRow where it is none."""
        number = self.number(column)
        if number is not None and not number.is_integer():
            raise UnusableRow(f"{column} is no whole number")
        return None if number is None else int(number)

    def flag(self, column: str) -> bool | None:
        """Return a cell as a switch; UnusableRow where it is none."""
        text = self.text(column).lower()
        if text and text not in YES | NO:
            raise UnusableRow(f"{column} is neither true nor false")
        return text in YES if text else None

    @property
    def configuration(self) -> tuple[tuple[str, str], ...]:
        """Everything that says what was run: equal for repeats of one run."""
        apart = MEASURED_COLUMNS | WITNESS_COLUMNS
        return tuple(sorted((column, text) for column, text in self.cells.items() if column not in apart))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """Reads one row and keeps account of the columns for which a default was taken."""

    row: Row
    assumed: set[str] = field(default_factory=set)

    def required(self, column: str) -> int:
        """Return a positive whole number that nothing can stand in for."""
        value = self.row.whole(column)
        if not value:
            raise UnusableRow(f"no {column}")
        return value

    def whole(self, column: str, *, default: int) -> int:
        """Return a whole number, or the default."""
        value = self.row.whole(column)
        return self.default(column, default) if value is None else value

    def degree(self, column: str) -> int:
        """Return over how many ranks something is split: one where the row does not say, or says none."""
        return max(self.whole(column, default=1), 1)

    def flag(self, column: str, *, default: bool) -> bool:
        """Return a switch, or the default."""
        value = self.row.flag(column)
        return self.default(column, default) if value is None else value

    def default(self, column: str, value: Value) -> Value:
        """Return a value that the row does not give, noted as assumed."""
        self.assumed.add(column)
        return value


def read_rows(path: Path) -> tuple[Row, ...]:
    """Return all rows of a CSV file in order; InvalidRequest for a file that is no table in UTF-8."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return tuple(_rows(path.name, csv.DictReader(file, restval="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest(f"{path.name} is no CSV file in UTF-8: {error}", pointer="") from error


def _rows(name: str, reader: "csv.DictReader[str]") -> Iterator[Row]:
    for cells in reader:
        known = {column: text for column, text in cells.items() if isinstance(column, str)}
        yield Row(file=name, line=reader.line_num, cells=known)
