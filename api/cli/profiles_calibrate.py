"""``meshplan profiles calibrate``: a machine's own factors, from steps that ran on it."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from api.cli.documents import read_json, validated
from api.cli.outcome import problems_told, write_json
from api.cli.tables import write_table
from api.cli.workspace import opened_workspace
from api.jobs.calibrating import calibrate_machine
from api.schemas.calibration import CalibrationDocument, CalibrationRequestDocument
from planner.errors import InvalidRequest
from planner.units import format_seconds

EXAMPLES = """\b
Examples:
  meshplan profiles calibrate                          # by the stored trials of one machine
  meshplan profiles calibrate --trial ID --trial ID --trial ID --dry-run
  meshplan profiles calibrate steps.csv --name h100/calibrated

steps.csv has a column `plan`, a result of `meshplan plan --json` or `evaluate --json` (a file, from
the folder of steps.csv), a column `step_seconds`, and may have `spread_seconds` and `label`. steps.json is a
list of the same, or of {"request": EVALUATION-REQUEST, "step_seconds": ...}.
Three steps are the least; several plans tell more than one plan several times. The calibration is a
profile: `meshplan profiles show | export | delete NAME`, and plans for the device use it.
"""
EVALUATED: Final = ("model", "cluster", "job", "profiles")
"""What an evaluation takes of any request as it is."""
NUMBERS: Final = ("step_seconds", "spread_seconds")


@click.command(epilog=EXAMPLES)
@click.argument("file", required=False, metavar="[STEPS.csv|STEPS.json]")
@click.option("--device", help="Which device is calibrated, where steps ran on several.")
@click.option("--name", help="Of the profile that holds the calibration [default: DEVICE/calibrated].")
@click.option("--trial", "trials", multiple=True, type=click.UUID, metavar="ID", help="A trial that counts.")
@click.option("--dry-run", is_flag=True, help="Store nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def command(
    file: str | None,
    device: str | None,
    name: str | None,
    trials: Sequence[object],
    dry_run: bool,  # noqa: FBT001 - a flag of the command line
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> None:
    """Fit a machine's own factors to steps that ran on it; list the stored plans that they change."""
    with problems_told(as_json=as_json):
        given = {
            "device": device,
            "name": name,
            "steps": [] if file is None else list(_steps(file)),
            "trials": [str(trial) for trial in trials] or None,
            "dry_run": dry_run,
        }
        document = validated(CalibrationRequestDocument, given)
        with opened_workspace() as workspace:
            found = calibrate_machine(document, workspace=workspace)
    if as_json:
        write_json(found.model_dump(mode="json"))
    else:
        _write(found)


def _steps(name: str) -> Iterator[dict[str, Any]]:
    folder = Path(name).parent
    rows = _csv_rows(Path(name)) if name.endswith(".csv") else read_json(name)
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidRequest(f"{name} is no list of steps", pointer="/steps")
    for number, row in enumerate(rows):
        yield _step(dict(row), folder, pointer=f"/steps/{number}")


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}", pointer="/steps") from error
    return [{key: value for key, value in row.items() if value} for row in rows]


def _step(row: dict[str, Any], folder: Path, *, pointer: str) -> dict[str, Any]:
    """Return a logged step as the service takes it, its plan read from a file where it names one."""
    for word in NUMBERS:
        if isinstance(row.get(word), str):
            row[word] = _number(row[word], pointer=f"{pointer}/{word}")
    if "request" in row:
        return row
    if not isinstance(row.get("plan"), str):
        raise InvalidRequest("a step has a plan, a file with a result", pointer=f"{pointer}/plan")
    path = str(folder / row.pop("plan"))
    return {"label": path, **row, "request": _evaluation(read_json(path), path, pointer=pointer)}


def _number(text: str, *, pointer: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidRequest(f"{text!r} is no number", pointer=pointer) from error


def _evaluation(result: object, path: str, *, pointer: str) -> dict[str, Any]:
    """Return the evaluation of a result's plan."""
    if not isinstance(result, Mapping) or not result.get("plan") or "request" not in result:
        raise InvalidRequest(f"{path} is no result with a plan", pointer=f"{pointer}/plan")
    request = {word: result["request"].get(word) for word in EVALUATED}
    return {**request, "plan": result["plan"]}


def _write(found: CalibrationDocument) -> None:
    state = "not stored" if found.digest is None else f"stored, {found.digest[:12]}"
    click.echo(f"{found.name}: {len(found.steps)} steps on {found.device} ({state})")
    write_table(
        ("kind", "factor", "uncertainty", "before", "largest share of a step"),
        [
            (
                one.kind.replace("_", " "),
                f"{one.factor:.3f}",
                f"± {one.relative_error:.1%}" if one.informed else "no step tells: as before",
                f"± {one.prior_relative_error:.1%}",
                f"{one.largest_share:.1%}",
            )
            for one in found.kinds
        ],
    )
    write_table(
        ("step", "measured", "predicted before", "now"),
        [
            (
                step.label,
                format_seconds(step.measured_seconds),
                _beside(step.before_seconds, step.measured_seconds),
                _beside(step.after_seconds, step.measured_seconds),
            )
            for step in found.steps
        ],
    )
    click.echo(f"median error {found.median_error_before:.1%} before, {found.median_error_after:.1%} now")
    for unused in found.unused:
        click.echo(f"not used: {unused.label}: {unused.reason}", err=True)
    _write_changes(found)


def _beside(seconds: float, measured_seconds: float) -> str:
    return f"{format_seconds(seconds)} ({seconds / measured_seconds - 1:+.1%})"


def _write_changes(found: CalibrationDocument) -> None:
    if not found.changed_plans:
        click.echo(f"{found.num_plans_compared} stored plans stay faster than their alternatives")
        return
    click.echo(
        f"{len(found.changed_plans)} of {found.num_plans_compared} stored plans are no longer the best:"
    )
    for plan in found.changed_plans:
        gain = 1 - plan.better_step_time_seconds / plan.step_time_seconds
        click.echo(f"  {plan.id}: {plan.better} ({plan.pointer}) takes {gain:.1%} less; plan it again")
