from pathlib import Path

import pytest

from planner.errors import InvalidRequest
from planner.validation.rows import Reader, Row, UnusableRow, read_rows
from tests.unit.planner.validation.published import row, run, write_runs


def test_rows_keep_their_order_and_their_lines(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs.csv", run(model="first"), run(model="second"))
    rows = read_rows(tmp_path / "runs.csv")
    assert [(found.text("model"), found.line, found.file) for found in rows] == [
        ("first", 2, "runs.csv"),
        ("second", 3, "runs.csv"),
    ]


def test_a_column_that_a_file_lacks_is_an_empty_cell(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("model,layers\nllama,32\nshort\n")
    first, second = read_rows(tmp_path / "runs.csv")
    assert first.whole("hidden") is None
    assert second.whole("layers") is None


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_bytes(b"model\n\xff\xfe\n")
    with pytest.raises(InvalidRequest, match=r"runs\.csv is no CSV file"):
        read_rows(tmp_path / "runs.csv")


@pytest.mark.parametrize(
    ("cells", "column", "reason"),
    [
        ({"gpus": "many"}, "gpus", "gpus is no number from zero up"),
        ({"gpus": "2.5"}, "gpus", "gpus is no whole number"),
        ({"gpus": "-8"}, "gpus", "gpus is no number from zero up"),
        ({"gpus": "inf"}, "gpus", "gpus is no number"),
        ({"gpus": "nan"}, "gpus", "gpus is no number"),
    ],
)
def test_a_cell_that_is_no_count_makes_a_row_unusable(
    cells: dict[str, str], column: str, reason: str
) -> None:
    with pytest.raises(UnusableRow, match=reason):
        row(**cells).whole(column)


@pytest.mark.parametrize(("text", "flag"), [("True", True), ("false", False), ("1", True), ("", None)])
def test_switches_are_read_in_any_spelling(text: str, *, flag: bool | None) -> None:
    assert row(flash_attn=text).flag("flash_attn") is flag


def test_a_cell_that_is_no_switch_makes_a_row_unusable() -> None:
    with pytest.raises(UnusableRow, match="flash_attn is neither true nor false"):
        row(flash_attn="maybe").flag("flash_attn")


def test_rows_that_differ_in_results_and_remarks_alone_are_one_configuration() -> None:
    again = row(step_time_s="0.6", notes="another day", source="someone else")
    assert again.configuration == row().configuration
    assert row(mbs="4").configuration != row().configuration


def test_a_reader_notes_what_it_had_to_assume() -> None:
    reader = Reader(row=row(cp="", vpp="2"))
    assert reader.whole("cp", default=1) == 1
    assert reader.whole("vpp", default=1) == 2
    assert reader.assumed == {"cp"}


@pytest.mark.parametrize("text", ["", "0"])
def test_a_required_count_has_no_default(text: str) -> None:
    with pytest.raises(UnusableRow, match="no layers"):
        Reader(row=row(layers=text)).required("layers")


def test_blanks_around_a_cell_do_not_matter() -> None:
    assert Row(file="f", line=2, cells={"tp": " 4 "}).whole("tp") == 4
