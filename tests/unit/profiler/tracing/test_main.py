import json
from pathlib import Path

import pytest

from planner.workload.chain import workload_from_layers
from profiler.tracing.__main__ import main


def test_the_chain_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "chain.json"
    code = main(["profiler.examples.models:tagger", "--input-tokens", "12", "--output", str(output)])
    assert (code, capsys.readouterr().out) == (0, "")
    assert workload_from_layers(json.loads(output.read_text())).parameters == 414_417


def test_without_a_file_it_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiler.examples.models:mixer", "--input", "3x64x64", "--dtype", "bf16"]) == 0
    assert workload_from_layers(json.loads(capsys.readouterr().out)).parameters == 566_698


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profiler.examples.models:mixer"], "no --input"),
        (["profiler.examples.models:mixer", "--input", "3xx"], "cannot be run"),
        (["profiler.examples.models:blender", "--input", "3"], "has no blender"),
    ],
)
def test_what_cannot_be_traced_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
