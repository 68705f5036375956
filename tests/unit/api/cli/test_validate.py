"""``meshplan validate``: predictions beside published measurements."""

from pathlib import Path

import pytest

from tests.unit.api.cli.commands import Command
from tests.unit.planner.validation.published import run, write_runs

MESHPLAN = Command(environment={})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of made-up runs, with repeats, skipped rows and a memory."""
    write_runs(
        tmp_path / "first.csv",
        run(),
        run(step_time_s="0.51"),
        run(step_time_s="40", mbs="1", recompute=""),
        run(layers=""),
    )
    write_runs(tmp_path / "second.csv", run(peak_mem_gib="12.5"), run(step_time_s="", oom="yes"))
    return tmp_path


def test_the_document_is_all_of_standard_output(folder: Path) -> None:
    ended = MESHPLAN("validate", str(folder), "--json")
    assert ended.code == 0
    assert set(ended.document["files"]) == {"first.csv", "second.csv"}
    assert ended.document["all"]["rows"] == 6
    assert ended.document["all"]["skipped"] == {"no layers": 1}
    assert ended.document["files"]["second.csv"]["memory"]["rows"] == 1


def test_a_person_reads_a_line_for_every_file(folder: Path) -> None:
    output = MESHPLAN("validate", str(folder)).output
    for words in ("first.csv", "second.csv", "all", "step time", "memory", "no layers", "recompute", "bf16"):
        assert words in output


def test_the_worst_rows_are_listed_with_what_was_predicted(folder: Path) -> None:
    output = MESHPLAN("validate", str(folder), "--worst", "1").output
    assert "first.csv:4" in output
    assert "40 s" in output
    assert "compute" in output
    assert "first.csv:2" not in output


def test_the_page_needs_nothing_else(folder: Path) -> None:
    page = folder / "accuracy.html"
    assert MESHPLAN("validate", str(folder), "--html", str(page)).code == 0
    text = page.read_text()
    assert text.count("<figure>") == 3
    assert text.count("<circle") == 5
    for word in ("http:", "https:", "src=", "href="):
        assert word not in text


def test_a_name_in_a_file_is_text_on_the_page(folder: Path) -> None:
    write_runs(folder / "third.csv", run(model="llama <script>"))
    page = folder / "accuracy.html"
    MESHPLAN("validate", str(folder), "--html", str(page))
    assert "<script>" not in page.read_text()


@pytest.mark.parametrize("arguments", [("no/such/folder",), (".", "--worst", "-1")])
def test_bad_arguments_end_with_2(arguments: tuple[str, ...]) -> None:
    assert MESHPLAN("validate", *arguments).code == 2


def test_a_folder_without_rows_ends_with_2(tmp_path: Path) -> None:
    ended = MESHPLAN("validate", str(tmp_path))
    assert ended.code == 2
    assert "holds no CSV files" in ended.errors


def test_parameters_are_listed_with_what_they_are_worth(folder: Path) -> None:
    ended = MESHPLAN("validate", str(folder), "--neutral", "--leave-out", "--json")
    found = {(one["program"], one["effect"]): one for one in ended.document["parameters"]}
    assert ("megatron-core", "pass_seconds") in found
    assert all(one["meaning"] and one["rests_on"] and one["runs"] for one in found.values())
    assert "megatron-core pass_seconds" in MESHPLAN("validate", str(folder), "--neutral").output
