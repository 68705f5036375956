"""Published runs of llm-foundry ran: none of them is called out of memory."""

import csv
from pathlib import Path
from typing import Final

import pytest

from planner.validation.evaluation import Evaluator
from planner.validation.rows import Row

FILE: Final = Path(__file__).parent / "data" / "llm_foundry_fits.csv"


def runs() -> list[Row]:
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return [
        Row(file=FILE.name, line=line, cells=cells) for line, cells in enumerate(csv.DictReader(lines), 2)
    ]


def name_of(run: Row) -> str:
    return "-".join(run.text(column) for column in ("model", "device", "device_mem_gib", "seq_len", "mbs"))


@pytest.mark.parametrize("run", runs(), ids=name_of)
def test_a_run_that_ran_fits(run: Row) -> None:
    outcome = Evaluator().outcome(run)
    assert outcome.prediction is not None, outcome.skipped
    fullest = max(stage.peak_bytes / stage.capacity_bytes for stage in outcome.prediction.memory)
    assert outcome.prediction.fits, f"predicted {fullest:.2f} of the device's memory"
