"""``meshplan trials``: the plans that were run, and what each measured."""

from uuid import UUID

import click

from api.cli.outcome import ProblemError, problems_told, write_json
from api.cli.tables import write_table
from api.cli.trial import write_trial
from api.cli.workspace import opened_workspace
from api.schemas.problem import FaultDocument, ProblemDocument
from planner.units import format_seconds

EXAMPLES = """\b
Examples:
  meshplan trials list
  meshplan trials show ID --json
"""


@click.group(epilog=EXAMPLES)
def command() -> None:
    """List or show plans that were run."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def list_command(as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""List the newest trials.

    \b
    Example: meshplan trials list
    """
    with problems_told(as_json=as_json), opened_workspace() as workspace:
        records = workspace.trials.recent()
    if as_json:
        write_json([{"id": str(record.id), **record.report} for record in records])
        return
    rows = []
    for record in records:
        time = record.report["step_time"]
        seconds = (format_seconds(time["predicted_seconds"]), format_seconds(time["measured_seconds"]))
        rows.append((str(record.id), f"{record.created_at:%Y-%m-%d %H:%M}", record.device, *seconds))
    write_table(("id", "since", "device", "predicted", "measured"), rows)


@command.command("show")
@click.argument("trial_id", metavar="ID", type=click.UUID)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def show_command(trial_id: UUID, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""Show what a trial measured against what was predicted.

    \b
    Example: meshplan trials show 0b8f6c1e-8a55-4f3c-9a3e-0d2f5c7f2b11 --json
    """
    with problems_told(as_json=as_json):
        with opened_workspace() as workspace:
            record = workspace.trials.get(trial_id)
        if record is None:
            fault = FaultDocument(pointer="", detail=f"no trial {trial_id}")
            raise ProblemError(ProblemDocument.of_faults([fault]))
    report = {"id": str(record.id), **record.report}
    if as_json:
        write_json(report)
    else:
        write_trial(report)
