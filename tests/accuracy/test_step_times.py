"""Predictions against the step times of published runs, within the bounds that were reached.

Where a bound is wide, the runs leave something unsaid that matters, or show what nothing explains yet:
DeepSeek-V3 under the first recipes of NeMo, two and four tensor-parallel ranks of vTrain's cluster, one
head width of BigScience's that tensor cores do not take.
"""

import csv
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from planner.validation.comparison import Comparison, step_time_comparison
from planner.validation.evaluation import Evaluator, Outcome
from planner.validation.metrics import high_quantile, median
from planner.validation.rows import Row

FOLDER: Final = Path(__file__).parent / "data"
BOUNDS: Final[dict[str, dict[str, float]]] = json.loads((FOLDER / "step_time_bounds.json").read_text())
"""Of each source and kind of model: errors as fractions, and the least share inside intervals."""


@cache
def outcomes() -> tuple[Outcome, ...]:
    text = (FOLDER / "step_times.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    rows = [
        Row(file="step_times.csv", line=line, cells=cells)
        for line, cells in enumerate(csv.DictReader(lines), 2)
    ]
    return tuple(Evaluator().outcomes(rows))


def group_of(row: Row) -> str:
    kind = "dense" if row.text("experts") in {"", "0", "1"} else "experts"
    return f"{row.text('source')} {kind}"


def compared(name: str) -> Sequence[Comparison]:
    return [
        found
        for outcome in outcomes()
        if group_of(outcome.row) == name and (found := step_time_comparison(outcome))
    ]


def test_every_run_is_predicted_and_has_a_bound() -> None:
    assert [outcome.skipped for outcome in outcomes() if outcome.skipped] == []
    assert {group_of(outcome.row) for outcome in outcomes()} == set(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_stay_in_their_bounds(name: str) -> None:
    errors = [abs(comparison.relative_error) for comparison in compared(name)]
    middle, high = median(errors), high_quantile(errors)
    assert middle is not None
    assert high is not None
    assert middle <= BOUNDS[name]["median"]
    assert high <= BOUNDS[name]["p90"]


@pytest.mark.parametrize("name", BOUNDS)
def test_intervals_hold_what_they_promise(name: str) -> None:
    comparisons = compared(name)
    covered = sum(comparison.is_covered for comparison in comparisons)
    assert covered >= BOUNDS[name]["covered"] * len(comparisons)
