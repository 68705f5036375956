"""``meshplan profile``: measure this machine, keep what was measured, say how to plan for it."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from api.cli.outcome import ProblemError, problems_told, write_json
from api.cli.profiles import keep_profile, write_refused
from api.cli.workspace import opened_workspace
from api.profile_library import LOCAL
from api.schemas.problem import FaultDocument, ProblemDocument
from api.workspace import Workspace
from planner.errors import InvalidRequest

EXAMPLES = """\b
Examples:
  meshplan profile
  meshplan profile --processes 2 --seconds-limit 30
  meshplan profile --name my-machine/measured --output PROFILE.json

It needs torch (pip install 'meshplan[profiler]'). Afterwards this machine is the cluster "local".
"""


@click.command(epilog=EXAMPLES)
@click.option("--name", metavar="NAME", help="Name of the profile. [default: DEVICE/measured]")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="What to measure.")
@click.option("--processes", type=click.IntRange(min=1), metavar="N", help="Processes that measure at once.")
@click.option("--seconds-limit", type=float, metavar="S", help="About when to stop. [default: when done]")
@click.option("--request", type=click.Path(exists=True), metavar="SHAPES.json", help="Shapes to measure.")
@click.option("--output", type=click.Path(), metavar="FILE", help="Keep the profile document there as well.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def command(output: str | None, as_json: bool, **options: Any) -> None:  # noqa: FBT001, ANN401 - as click gives them
    """Measure kernels and links of this machine, and keep them for the next plans."""
    with problems_told(as_json=as_json), tempfile.TemporaryDirectory(prefix="meshplan-profile-") as folder:
        path = Path(output) if output else Path(folder) / "profile.json"
        _measure(path, options)
        document = json.loads(path.read_text())
        with opened_workspace() as workspace:
            stored = keep_profile(document, workspace=workspace)
            advice = _advice(document, workspace=workspace)
    if as_json:
        write_json(stored.model_dump(mode="json"))
    else:
        write_refused(stored)
        click.echo(f"{stored.name}: {stored.num_accepted} measurements of {stored.device}")
        click.echo(advice)


def _measure(path: Path, options: dict[str, Any]) -> None:
    """Run the profiler as a process of its own; it tells its progress on standard error itself."""
    if find_spec("torch") is None:
        raise _problem("the profiler needs torch: pip install 'meshplan[profiler]'")
    arguments = [sys.executable, "-m", "profiler", "--output", str(path)]
    for option, value in options.items():
        if value is not None:
            arguments += [f"--{option.replace('_', '-')}", str(value)]
    ended = subprocess.run(arguments, stdout=sys.stderr, check=False)  # noqa: S603 - our own module
    if ended.returncode or not path.exists():
        raise _problem(f"the profiler ended with code {ended.returncode}: what it said stands above")


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


def _problem(detail: str) -> ProblemError:
    return ProblemError(ProblemDocument.of_faults([FaultDocument(pointer="", detail=detail)]))
