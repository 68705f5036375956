from pathlib import Path

import pytest

from planner.errors import InvalidRequest
from planner.validation.folder import evaluate_folder, read_folder, worst_outcomes
from tests.unit.planner.validation.published import run, write_runs


def test_every_file_is_read_by_its_columns(tmp_path: Path) -> None:
    write_runs(tmp_path / "b.csv", run())
    write_runs(tmp_path / "a.csv", run(), run(mbs="1"))
    (tmp_path / "notes.txt").write_text("no rows")
    rows = read_folder(tmp_path)
    assert {name: len(found) for name, found in rows.items()} == {"a.csv": 2, "b.csv": 1}


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="holds no CSV files"):
        read_folder(tmp_path)


def test_each_row_is_reported_as_it_is_done(tmp_path: Path) -> None:
    write_runs(tmp_path / "a.csv", run(), run(layers=""))
    done: list[None] = []
    files = evaluate_folder(read_folder(tmp_path), on_row=lambda: done.append(None))
    assert len(done) == 2
    assert [outcome.skipped for outcome in files["a.csv"]] == [None, "no layers"]


def test_the_worst_rows_come_first(tmp_path: Path) -> None:
    write_runs(
        tmp_path / "a.csv", run(step_time_s="0.6"), run(step_time_s="60"), run(step_time_s="", oom="no")
    )
    write_runs(tmp_path / "b.csv", run(step_time_s="0.01"))
    files = evaluate_folder(read_folder(tmp_path))
    worst = [(outcome.row.file, outcome.row.line) for outcome in worst_outcomes(files, 2)]
    assert worst == [("a.csv", 3), ("b.csv", 2)]
