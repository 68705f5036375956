import csv
import json
from pathlib import Path

import pytest

from tests.unit.api.cli.commands import Command

JOB = (
    "--model",
    "gpt-2-124m",
    "--cluster",
    "t4:2",
    "--global-batch",
    "4",
    "--sequence",
    "64",
    "--precision",
    "fp32",
)
PLANS = ("data_parallel=2", "tensor_parallel=2", "pipeline_parallel=2")


@pytest.fixture
def steps(meshplan: Command, tmp_path: Path) -> Path:
    """A file of steps that took 1.4 times their predicted time."""
    rows = []
    for number, plan in enumerate(PLANS):
        ended = meshplan("evaluate", *JOB, "--plan", plan, "--framework", "pytorch", "--json")
        (tmp_path / f"result-{number}.json").write_text(ended.output)
        seconds = 1.4 * ended.document["prediction"]["step_time_seconds"]
        rows.append(
            {"plan": f"result-{number}.json", "step_seconds": seconds, "spread_seconds": "", "label": plan}
        )
    path = tmp_path / "steps.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_table_of_steps_calibrates_a_machine(meshplan: Command, steps: Path) -> None:
    ended = meshplan("profiles", "calibrate", str(steps))
    assert ended.code == 0, ended.errors
    assert "t4-16gb/calibrated: 3 steps on T4-16GB (stored, " in ended.output
    assert "no step tells: as before" in ended.output
    assert "tensor_parallel=2" in ended.output
    assert "t4-16gb/calibrated" in meshplan("profiles", "list").output
    after = meshplan("evaluate", *JOB, "--plan", PLANS[0], "--framework", "pytorch", "--json").document
    assert "t4-16gb/calibrated" in {used["name"] for used in after["profiles"]}
    before = json.loads((steps.parent / "result-0.json").read_text())
    ratio = after["prediction"]["step_time_seconds"] / before["prediction"]["step_time_seconds"]
    assert ratio == pytest.approx(1.4, rel=0.1)
    assert meshplan("profiles", "delete", "t4-16gb/calibrated").code == 0


def test_a_list_of_steps_says_the_same(meshplan: Command, steps: Path) -> None:
    with steps.open(newline="") as file:
        rows = [{**row, "spread_seconds": 0.0} for row in csv.DictReader(file)]
    listed = steps.with_suffix(".json")
    listed.write_text(json.dumps(rows))
    found = [
        meshplan("profiles", "calibrate", str(path), "--dry-run", "--json").document
        for path in (steps, listed)
    ]
    assert found[0]["digest"] is None
    assert found[0]["kinds"] == found[1]["kinds"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("plan,step_seconds\nresult-0.json,fast\n", "'fast' is no number"),
        ("plan,step_seconds\nmissing.json,1\n", "missing.json"),
        ("step_seconds\n1\n", "a step has a plan"),
        ("plan,step_seconds\nresult-0.json,1\n", "1 logged steps do not calibrate"),
        ("plan,step_seconds\nresult-0.json,-1\n", "/steps/0/step_seconds"),
        ("plan,step_seconds\nsteps.csv,1\n", "not JSON"),
    ],
)
def test_steps_that_cannot_be_used_are_refused(
    meshplan: Command, steps: Path, rows: str, reason: str
) -> None:
    steps.write_text(rows)
    ended = meshplan("profiles", "calibrate", str(steps))
    assert ended.code == 2
    assert reason in " ".join(ended.errors.split())


def test_no_file_and_no_trial_says_what_to_do(meshplan: Command) -> None:
    ended = meshplan("profiles", "calibrate")
    assert ended.code == 2
    assert "run `meshplan trial`" in " ".join(ended.errors.split())
