"""``meshplan validate``: how far predictions lie from published measurements."""

from itertools import chain
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from api.cli.accuracy_page import accuracy_page
from api.cli.accuracy_tables import write_accuracy, write_worst
from api.cli.outcome import problems_told, write_json
from api.cli.parameter_tables import parameters_document, write_parameters
from planner.validation.ablation import Ablation, ablations
from planner.validation.folder import Files, evaluate_folder, read_folder, worst_outcomes
from planner.validation.memory_ablation import memory_ablations
from planner.validation.refit import left_out_files
from planner.validation.report import validation_document
from planner.validation.runs import timed_runs

EXAMPLES = """\b
Examples:
  meshplan validate measured/
  meshplan validate measured/ --worst 20 --html accuracy.html
  meshplan validate measured/ --json
  meshplan validate measured/ --neutral --leave-out

DIR holds CSV files with one published run in a row. Everything is read from the columns, which the header
names: model sizes, devices and links, framework, batch, parallel degrees, and what was measured.
"""


@click.command(epilog=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--worst", type=click.IntRange(min=0), default=0, metavar="N", help="List the N worst rows.")
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a page with a scatter plot of every file.",
)
@click.option("--neutral", is_flag=True, help="Show what each fitted parameter is worth.")
@click.option("--leave-out", is_flag=True, help="Predict each source with parameters fitted without it.")
@click.option("--json", "as_json", is_flag=True, help="Write the report document and nothing else.")
def command(
    *, folder: Path, worst: int, page: Path | None, neutral: bool, leave_out: bool, as_json: bool
) -> None:
    """Predict every published run of a folder and report the errors."""
    with problems_told(as_json=as_json):
        files = _evaluated(folder)
        worth = _worth(files) if neutral else []
        files = left_out_files(files) if leave_out else files
        document = validation_document(files)
        if neutral:
            document["parameters"] = parameters_document(worth)
        if page:
            page.write_text(accuracy_page(files, document), encoding="utf-8")
    if as_json:
        write_json(document)
        return
    write_accuracy(document)
    if neutral:
        write_parameters(worth)
    if worst:
        write_worst(worst_outcomes(files, worst))


def _worth(files: Files) -> list[Ablation]:
    """Return what each parameter is worth, those of time first, then those of memory."""
    outcomes = list(chain(*files.values()))
    return [*ablations(timed_runs(outcomes)), *memory_ablations(outcomes)]


def _evaluated(folder: Path) -> Files:
    """Evaluate all rows, with a bar on standard error where that is a terminal."""
    rows = read_folder(folder)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("predicting", total=sum(map(len, rows.values())))
        return evaluate_folder(rows, on_row=lambda: progress.advance(task))
