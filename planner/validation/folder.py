"""A folder of published runs, read and evaluated file by file."""

from collections.abc import Callable, Mapping
from pathlib import Path

from planner.errors import InvalidRequest
from planner.validation.comparison import step_time_comparison
from planner.validation.evaluation import Evaluator, Outcome
from planner.validation.rows import Row, read_rows

Files = Mapping[str, tuple[Outcome, ...]]
"""The outcomes of each file's rows in order, by the file's name."""


def read_folder(folder: Path) -> dict[str, tuple[Row, ...]]:
    """Return the rows of every CSV file in a folder, by name; InvalidRequest where there are none."""
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        raise InvalidRequest(f"{folder} holds no CSV files", pointer="")
    return {path.name: read_rows(path) for path in paths}


def evaluate_folder(
    files: Mapping[str, tuple[Row, ...]], *, on_row: Callable[[], None] | None = None
) -> Files:
    """Return the outcome of every row; ``on_row`` is called after each."""
    evaluator = Evaluator()

    def outcome(row: Row) -> Outcome:
        result = evaluator.outcome(row)
        if on_row:
            on_row()
        return result

    return {name: tuple(map(outcome, rows)) for name, rows in files.items()}


def worst_outcomes(files: Files, count: int) -> list[Outcome]:
    """Return the rows whose step time was predicted worst, the worst first, by the ratio of both times."""
    compared = [
        (found.distance, outcome)
        for outcomes in files.values()
        for outcome in outcomes
        if (found := step_time_comparison(outcome))
    ]
    return [outcome for _, outcome in sorted(compared, key=lambda entry: -entry[0])[:count]]
