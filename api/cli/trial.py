"""``meshplan trial``: plans run for some steps on this machine, what they take against what was predicted."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from api.cli.documents import read_json, validated
from api.cli.outcome import ExitCode, ProblemError, problems_told, write_json
from api.cli.tables import write_table
from api.cli.trial_report import trial_report
from api.cli.workspace import opened_workspace
from api.jobs.answering import resolve_cluster
from api.schemas.plan import PlanDocument
from api.schemas.problem import FaultDocument, ProblemDocument
from api.schemas.request import AnyRequestDocument, EvaluationRequestDocument, PlanRequestDocument
from api.workspace import Workspace
from planner.framework import StateFormats
from planner.frameworks import framework_by_name
from planner.job import AttentionKind, Job, Precision
from planner.units import format_bytes, format_seconds
from planner.workload.chain import layers_document

Document = dict[str, Any]

HALF_BYTES = 2

EXAMPLES = """\b
Examples:
  meshplan plan --model config.json --cluster local:2 --global-batch 8 --sequence 128 \\
      --precision fp32 --framework pytorch --json > plan.json
  meshplan trial plan.json
  meshplan trial plan.json --write-order order.json     # then, on machines of your own:
  torchrun --nproc-per-node 8 -m profiler.trial order.json --output measured.json
  meshplan trial plan.json --measured measured.json

PLAN.json is a result of `meshplan plan` or `evaluate`; several of one number of ranks run in turn.
The model is a plain decoder of the plan's sizes on random tokens. It needs torch
(pip install 'meshplan[profiler]').
Exit codes: 0 the losses are those of one process, 1 they are not, 2 what a trial does not have.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRun:
    """How to run plans."""

    steps: int
    device: str
    has_reference: bool

    def start(self, orders: Sequence[Document]) -> list[Document]:
        """Run plans as processes of their own, which load torch; return what was measured for each.

        Raises ProblemError where torch is missing, or with what the run said last.
        """
        if find_spec("torch") is None:
            raise _problem("a trial needs torch: pip install 'meshplan[profiler]'")
        with tempfile.TemporaryDirectory(prefix="meshplan-trial-") as folder:
            paths = [Path(folder) / f"order-{number}.json" for number in range(len(orders))]
            for path, order in zip(paths, orders, strict=True):
                path.write_text(json.dumps(order))
            output = Path(folder) / "measured.json"
            command = [sys.executable, "-m", "profiler.trial", *map(str, paths), *self._options(output)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
            if ended.returncode or not output.exists():
                lines = ended.stderr.strip().splitlines() or [f"the run ended with code {ended.returncode}"]
                raise _problem(lines[-1].removeprefix("trial: "))
            return list(json.loads(output.read_text()))

    def _options(self, output: Path) -> list[str]:
        options = ["--output", str(output), "--steps", str(self.steps), "--device", self.device]
        return options if self.has_reference else [*options, "--without-reference"]


@click.command(epilog=EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="PLAN.json...")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True, help="Steps to time.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="What to run on.")
@click.option("--without-reference", is_flag=True, help="Do not run the model in one process as well.")
@click.option(
    "--write-order", type=click.Path(dir_okay=False), metavar="FILE", help="Run nothing: write what to run."
)
@click.option(
    "--measured", type=click.Path(exists=True), metavar="FILE", help="Run nothing: what was measured."
)
@click.option("--json", "as_json", is_flag=True, help="Write the reports and nothing else.")
def command(
    files: Sequence[str],
    steps: int,
    device: str,
    without_reference: bool,  # noqa: FBT001 - a flag of the command line
    write_order: str | None,
    measured: str | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> None:
    """Run plans for some steps, and report predicted against measured time and memory."""
    with problems_told(as_json=as_json):
        results = [_result(name) for name in files]
        with opened_workspace() as workspace:
            orders = [_order(result, workspace=workspace) for result in results]
            if write_order is not None:
                _write_order(orders, Path(write_order))
                return
            run = TrialRun(steps=steps, device=device, has_reference=not without_reference)
            found = run.start(orders) if measured is None else _measured(measured, len(orders))
            reports = [
                _stored(result, own, workspace=workspace) for result, own in zip(results, found, strict=True)
            ]
    if as_json:
        write_json(reports)
    else:
        for report in reports:
            write_trial(report)
    if any(report["numerics"]["agree"] is False for report in reports):
        sys.exit(ExitCode.NOTHING_FITS)


def write_trial(report: Mapping[str, Any]) -> None:
    """Write a report for a person."""
    time, numerics = report["step_time"], report["numerics"]
    agree = {True: "as of one process", False: "NOT those of one process", None: "not compared"}
    losses = ", ".join(f"{loss:.4f}" for loss in numerics["losses"])
    click.echo(f"trial {report['id']} of plan {report['result_id']} on {report['device']}")
    click.echo(f"losses of the first steps: {losses} ({agree[numerics['agree']]})")
    rows = [("step time", time["predicted_seconds"], time["measured_seconds"])]
    rows += [
        (f"  {row['part'].replace('_', ' ')}", row["predicted_seconds"], row["measured_seconds"])
        for row in report["parts"]
    ]
    shown = [(name, format_seconds(predicted), format_seconds(found)) for name, predicted, found in rows]
    shown += [
        (
            f"stage {row['stage']} {row['part'].replace('_', ' ')}",
            format_bytes(row["predicted_bytes"]),
            format_bytes(row["measured_bytes"]),
        )
        for row in report["memory"]
    ]
    write_table(("", "predicted", "measured"), shown)
    for line in report["explanation"]:
        click.echo(line)
    for line in report["warnings"]:
        click.echo(f"warning: {line}", err=True)


def _result(name: str) -> Document:
    """Return a result document that has a plan and its prediction."""
    document = read_json(name)
    if not isinstance(document, dict) or not {"id", "request", "plan", "prediction"} <= document.keys():
        raise _problem(f"{name} is no result of `meshplan plan` or `meshplan evaluate`")
    if document["plan"] is None or document["prediction"] is None:
        raise _problem(f"{name} is a result without a plan")
    validated(PlanDocument, document["plan"])
    return document


def _order(result: Document, *, workspace: Workspace) -> Document:
    """Return what the profiler is asked to run: the chain, the plan, its device, what it needs of the job."""
    request = _request(result)
    workload = request.job.with_samples(request.model.to_workload())
    job = request.job.to_job(workload)
    if job.sequence_length is None:
        raise _problem("a trial has no model without a sequence")
    try:
        layers = layers_document(workload)["layers"]
    except TypeError as error:
        raise _problem(f"a trial has no such model: {error}") from error
    return {
        "layers": layers,
        "plan": result["plan"],
        "device": _planned_device(result, workspace=workspace),
        "job": {
            "sequence_length": job.sequence_length,
            "precision": job.precision.value,
            "parameter_dtype": _parameter_dtype(job),
            "optimizer": request.job.optimizer,
            "unfused_attention": job.attention is AttentionKind.UNFUSED,
        },
    }


def _request(result: Document) -> AnyRequestDocument:
    if "plan" in result["request"]:
        return validated(EvaluationRequestDocument, result["request"])
    return validated(PlanRequestDocument, result["request"])


def _parameter_dtype(job: Job) -> str:
    """Return the format of parameters, gradients and moments: narrow where they have no wide master."""
    framework = framework_by_name(job.framework, version=job.framework_version)
    widths = framework.widths(job.precision, moment_values=0, formats=StateFormats.of(job))
    is_narrow = widths.parameter == HALF_BYTES and not widths.master
    return Precision.BF16.value if is_narrow else Precision.FP32.value


def _write_order(orders: Sequence[Document], path: Path) -> None:
    if len(orders) != 1:
        raise _problem("--write-order takes one plan")
    path.write_text(json.dumps(orders[0], indent=1))
    click.echo(f"{path} written", err=True)


def _measured(name: str, wanted: int) -> list[Document]:
    document = read_json(name)
    if not isinstance(document, list) or len(document) != wanted:
        raise _problem(f"{name} does not hold what was measured of {wanted} plans")
    return document


def _stored(result: Document, measured: Document, *, workspace: Workspace) -> Document:
    """Return the report of a trial, kept with an id of its own."""
    report = trial_report(result, measured, planned_device=_planned_device(result, workspace=workspace))
    trial_id = workspace.trials.add(report, result_id=UUID(result["id"]), device=measured["device"])
    return {"id": str(trial_id), **report}


def _planned_device(result: Document, *, workspace: Workspace) -> str:
    """Return the name of the device that a plan was made for."""
    return resolve_cluster(_request(result).cluster, library=workspace.library).node_groups[0].device.name


def _problem(detail: str) -> ProblemError:
    return ProblemError(ProblemDocument.of_faults([FaultDocument(pointer="", detail=detail)]))
