"""``meshplan profile``: measure this machine, keep what was measured, say how to plan for it."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from api.cli.documents import read_json, validated
from api.cli.outcome import problems_told, write_json
from api.cli.profile_for import Session, measure_for
from api.cli.profile_kubernetes import kubernetes_manifest
from api.cli.profile_sbatch import sbatch_script
from api.cli.profile_upload import client_of, send_or_say_how
from api.cli.profiler_process import ProfilerRun, usual_output
from api.cli.profiles import keep_profile, write_refused
from api.cli.workspace import opened_workspace, read_settings
from api.jobs.answering import resolve
from api.profile_library import LOCAL
from api.schemas.catalogue import StoredProfileDocument
from api.schemas.request import PlanRequestDocument
from api.workspace import Workspace
from planner.errors import InvalidRequest
from planner.wanted_shapes import wanted_shapes

EXAMPLES = """\b
Examples:
  meshplan profile
  meshplan profile --processes 2 --seconds-limit 30
  meshplan profile --for REQUEST.json --seconds-limit 300
  meshplan profile --name my-machine/measured --output PROFILE.json --upload http://planner:8000
  meshplan profile --sbatch job.sh --nodes 2 --devices-per-node 8 --output /shared/PROFILE.json
  meshplan profile --kubernetes job.json --nodes 2 --devices-per-node 8 --image IMAGE --upload http://planner:8000

It needs torch (pip install 'meshplan[profiler]'). Afterwards this machine is the cluster "local".
A run that was killed goes on where it stopped; one that ended is refined by the next.
"""


@click.command(epilog=EXAMPLES)
@click.option("--name", metavar="NAME", help="Name of the profile. [default: DEVICE/measured]")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="What to measure.")
@click.option("--processes", type=click.IntRange(min=1), metavar="N", help="Processes that measure at once.")
@click.option("--seconds-limit", type=float, metavar="S", help="About when to stop. [default: when done]")
@click.option("--request", type=click.Path(exists=True), metavar="SHAPES.json", help="Shapes to measure.")
@click.option(
    "--for",
    "request_file",
    metavar="REQUEST.json|-",
    help="Measure what a search over this request asks for, first what moves its prediction most.",
)
@click.option("--load-seconds", type=float, metavar="S", help="Load the devices first: what do they sustain?")
@click.option("--drive-file", type=click.Path(), metavar="FILE", help="A new file on the drive to measure.")
@click.option("--afresh", is_flag=True, help="Forget what earlier runs found.")
@click.option(
    "--output", type=click.Path(), metavar="FILE", help="Where to keep the profile and its journal."
)
@click.option("--upload", metavar="URL", help="Send the profile to this service as well.")
@click.option("--sbatch", metavar="FILE|-", help="Measure nothing: write a job script for Slurm.")
@click.option("--kubernetes", metavar="FILE|-", help="Measure nothing: write a manifest for Kubernetes.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, help="Nodes of a batch job.")
@click.option("--devices-per-node", type=click.IntRange(min=1), default=1, help="Devices of each of them.")
@click.option(
    "--image", metavar="IMAGE", help="Container image of a manifest, with meshplan and torch in it."
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def command(as_json: bool, **options: Any) -> None:  # noqa: FBT001, ANN401 - as click gives them
    """Measure kernels and links of this machine, and keep them for the next plans."""
    with problems_told(as_json=as_json):
        if options["sbatch"] or options["kubernetes"]:
            _write_batch_job(options)
            return
        settings = read_settings()
        output = _path(options["output"])
        run = ProfilerRun(
            output=output
            or usual_output(settings.database_url, device=options["device"], processes=options["processes"]),
            name=options["name"],
            device=options["device"],
            processes=options["processes"],
            seconds_limit=options["seconds_limit"],
            request=_path(options["request"]),
            load_seconds=options["load_seconds"],
            drive_file=_path(options["drive_file"]),
            afresh=options["afresh"],
        )
        with opened_workspace() as workspace:
            stored, advice = _measure(run, options["request_file"], workspace=workspace)
        if as_json:
            write_json(stored.model_dump(mode="json"))
        else:
            write_refused(stored)
            click.echo(f"{stored.name}: {stored.num_accepted} measurements of {stored.device}")
            click.echo(advice)
        if options["upload"]:
            document = json.loads(run.output.read_text())
            send_or_say_how(document, name=str(run.output), client=client_of(options["upload"]))


def _measure(
    run: ProfilerRun, request_file: str | None, *, workspace: Workspace
) -> tuple[StoredProfileDocument, str]:
    """Measure all, or what a request asks for; return what was stored and how to plan with it."""
    if request_file is None:
        document = run.start()
    else:
        deadline = None if run.seconds_limit is None else time.monotonic() + run.seconds_limit
        document = measure_for(
            Session(
                request=validated(PlanRequestDocument, read_json(request_file)),
                run=run,
                workspace=workspace,
                store=lambda found: write_refused(keep_profile(found, workspace=workspace)),
                deadline=deadline,
            )
        )
    return keep_profile(document, workspace=workspace), _advice(document, workspace=workspace)


def _write_batch_job(options: Mapping[str, Any]) -> None:
    """Write a job script or a manifest that measures, in place of measuring."""
    shapes = _shapes_of_job(options)
    for target, write in ((options["sbatch"], sbatch_script), (options["kubernetes"], kubernetes_manifest)):
        if target == "-":
            click.echo(write(options, request=shapes), nl=False)
        elif target:
            Path(target).write_text(write(options, request=shapes))
            click.echo(f"{target} written", err=True)


def _shapes_of_job(options: Mapping[str, Any]) -> Path | None:
    """Return the list of shapes that a job measures: the one given, or one made here for a request.

    A node that measures has no solver, so that the planner writes the list before.
    """
    if options["request_file"] is None:
        return Path(options["request"]).absolute() if options["request"] else None
    target = options["sbatch"] or options["kubernetes"]
    path = Path("meshplan-profile" if target == "-" else target).absolute().with_suffix(".shapes.json")
    request = validated(PlanRequestDocument, read_json(options["request_file"]))
    with opened_workspace() as workspace:
        wanted = wanted_shapes(resolve(request, library=workspace.library).request)
    path.write_text(json.dumps(wanted.to_document(), indent=1))
    click.echo(f"{path} written: {len(wanted.influence)} shapes", err=True)
    return path


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _advice(document: Mapping[str, Any], *, workspace: Workspace) -> str:
    """Return how to plan for this machine now, or what is missing for that."""
    num_devices = document["facts"]["processes"]
    try:
        cluster = workspace.library.machine_cluster(LOCAL, num_devices=num_devices)
    except InvalidRequest as error:
        return f"{error.message}; measure again with a longer --seconds-limit"
    assert cluster is not None
    known = cluster.node_groups[0].device.peak_flops_per_second
    precision = "bf16" if "bf16" in known else next(iter(known))
    return (
        "The next plan for this machine is made from them:\n"
        f"  meshplan plan --model gpt-2-124m --cluster {LOCAL}:{num_devices} --global-batch 8 --sequence 128 "
        f"--precision {precision} --framework pytorch"
    )
