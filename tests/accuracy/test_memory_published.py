"""Predictions against the peak memory of published runs, within the bounds that were reached."""

import csv
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from planner.validation.comparison import Comparison, fit_comparison, memory_comparison
from planner.validation.evaluation import Evaluator, Outcome
from planner.validation.metrics import high_quantile, median, underestimated_share
from planner.validation.rows import Row

FOLDER: Final = Path(__file__).parent / "data"
BOUNDS: Final[dict[str, dict[str, float]]] = json.loads((FOLDER / "memory_bounds.json").read_text())
"""Of each file: errors as fractions, the least share inside intervals, the most underestimated by 5 %, and
how many runs that ran out of memory are called fitting."""
ALLOCATED: Final = "simumax_b200_memory.csv"
TOLERANCE_FRACTION: Final = 0.02


@cache
def outcomes(name: str) -> tuple[Outcome, ...]:
    lines = [line for line in (FOLDER / name).read_text().splitlines() if not line.startswith("#")]
    rows = [Row(file=name, line=line, cells=cells) for line, cells in enumerate(csv.DictReader(lines), 2)]
    return tuple(Evaluator().outcomes(rows))


def compared(name: str) -> Sequence[Comparison]:
    return [found for outcome in outcomes(name) if (found := memory_comparison(outcome))]


def run_of(outcome: Outcome) -> str:
    return "-".join(outcome.row.text(column) for column in ("model", "seq_len", "tp", "cp", "pp", "ep"))


@pytest.mark.parametrize("name", BOUNDS)
def test_every_run_can_be_asked_about(name: str) -> None:
    assert [outcome.skipped for outcome in outcomes(name) if outcome.skipped] == []


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


@pytest.mark.parametrize("name", BOUNDS)
def test_few_peaks_are_underestimated(name: str) -> None:
    share = underestimated_share(compared(name))
    assert share is not None
    assert share <= BOUNDS[name]["underestimated"]


@pytest.mark.parametrize("name", BOUNDS)
def test_what_ran_out_of_memory_is_called(name: str) -> None:
    verdicts = [fit_comparison(outcome) for outcome in outcomes(name)]
    assert verdicts.count((True, False)) <= BOUNDS[name]["called_fitting"]


@pytest.mark.parametrize("outcome", outcomes(ALLOCATED), ids=run_of)
def test_live_tensors_of_megatron_are_close_to_the_published_ones(outcome: Outcome) -> None:
    comparison = memory_comparison(outcome)
    assert comparison is not None
    assert abs(comparison.relative_error) < TOLERANCE_FRACTION
