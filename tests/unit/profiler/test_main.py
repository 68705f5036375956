import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from profiler.__main__ import _load_seconds, _parser, main
from profiler.journal import open_journal

SHAPES = {
    "format": "meshplan-shapes/1",
    "kernels": [{"operator": "add", "dtype": "fp32", "phase": "forward", "shape": {"elems": 64}}],
}


@pytest.fixture
def request_path(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps(SHAPES))
    return path


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_measured_machine_is_a_success(
    tmp_path: Path, request_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "profile.json"

    code = main(
        ["--output", str(output), "--request", str(request_path), "--processes", "1", "--device", "cpu"]
    )

    assert code == 0
    assert len(json.loads(output.read_text())["kernels"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("[1/1] add forward fp32 elems=64: ")


def test_nothing_measured_is_no_success(tmp_path: Path, request_path: Path) -> None:
    request_path.write_text(json.dumps({"format": "meshplan-shapes/1"}))
    output = tmp_path / "profile.json"

    code = main(
        ["--output", str(output), "--request", str(request_path), "--processes", "1", "--device", "cpu"]
    )

    assert code == 1
    assert json.loads(output.read_text())["kernels"] == []


def test_bad_request_is_told_by_its_pointer(
    tmp_path: Path, request_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request_path.write_text("{}")

    assert main(["--output", str(tmp_path / "profile.json"), "--request", str(request_path)]) == 2
    assert "/format: must be 'meshplan-shapes/1'" in capsys.readouterr().err


def test_folder_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path / "absent" / "profile.json")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_processes_that_torchrun_did_not_start_are_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)

    assert main(["--output", str(tmp_path / "profile.json"), "--processes", "3", "--device", "cpu"]) == 2
    assert "torchrun started 2 processes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--processes", "0"],
        ["--processes", "two"],
        ["--seconds-limit", "nan"],
        ["--seconds-limit", "-1"],
        ["--device", "abacus"],
    ],
)
def test_arguments_without_meaning_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--output", "profile.json", *arguments])

    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "kind", "seconds"),
    [
        ([], "cpu", 0),
        ([], "cuda", 60),
        (["--seconds-limit", "50"], "cuda", 10),
        (["--request", "shapes.json"], "cuda", 0),
        (["--load-seconds", "5"], "cpu", 5),
    ],
)
def test_accelerators_are_loaded_for_a_minute(arguments: list[str], kind: str, seconds: float) -> None:
    parsed = _parser().parse_args(["--output", "profile.json", *arguments])

    assert _load_seconds(parsed, kind) == seconds


def test_journal_of_another_machine_is_bad_input(
    tmp_path: Path, request_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "profile.json"
    open_journal(tmp_path / "profile.json.journal", run="then", identity={"torch": "1.0"})
    arguments = [
        "--output",
        str(output),
        "--request",
        str(request_path),
        "--processes",
        "1",
        "--device",
        "cpu",
    ]

    assert main(arguments) == 2
    assert "write to another file, or start afresh" in capsys.readouterr().err
    assert main([*arguments, "--afresh"]) == 0


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])

    assert "python -m profiler --output here.json --request shapes.json" in capsys.readouterr().out
