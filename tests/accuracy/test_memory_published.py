"""Predictions against peaks of live tensors that runs of Megatron-LM on B200 printed."""

import csv
from pathlib import Path

import pytest

from planner.validation.comparison import Comparison, memory_comparison
from planner.validation.evaluation import Evaluator
from planner.validation.rows import Row

DATA = Path(__file__).parent / "data" / "simumax_b200_memory.csv"
TOLERANCE_FRACTION = 0.025
MEDIAN_TOLERANCE_FRACTION = 0.01
COVERED_SHARE = 0.75


def published_runs() -> list[Row]:
    lines = [line for line in DATA.read_text().splitlines() if not line.startswith("#")]
    return [Row(file=DATA.name, line=line, cells=cells) for line, cells in enumerate(csv.DictReader(lines))]


def named(run: Row) -> str:
    return "-".join(run.text(column) for column in ("model", "seq_len", "tp", "cp", "pp", "ep"))


def compared(run: Row) -> Comparison:
    comparison = memory_comparison(Evaluator().outcome(run))
    assert comparison is not None
    return comparison


@pytest.mark.parametrize("run", published_runs(), ids=named)
def test_peak_memory_is_close_to_the_published_one(run: Row) -> None:
    assert abs(compared(run).relative_error) < TOLERANCE_FRACTION


def test_half_of_the_peaks_are_off_by_less_than_a_hundredth() -> None:
    errors = sorted(abs(compared(run).relative_error) for run in published_runs())
    assert errors[len(errors) // 2] < MEDIAN_TOLERANCE_FRACTION


def test_most_peaks_lie_in_their_intervals() -> None:
    covered = [compared(run).is_covered for run in published_runs()]
    assert sum(covered) >= COVERED_SHARE * len(covered)
