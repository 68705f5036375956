"""``meshplan trace``: a torch module of the user's own as the chain of layers that a request may name."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from api.cli.documents import read_json
from api.cli.outcome import ProblemError, problems_told, write_json
from api.cli.tables import write_table
from api.pages.quantities import count
from api.schemas.problem import FaultDocument, ProblemDocument
from planner.units import format_bytes, format_count
from planner.workload.chain import workload_from_layers
from planner.workload.layers import Cut, LayerRun, Workload
from planner.workload.recomputation import saved_bytes

EXAMPLES = """\b
Examples:
  meshplan trace profiler.examples.models:residual_network --input 3x64x64 -o chain.json
  meshplan trace my_models.py:Tagger --input-tokens 128 -o chain.json
  meshplan trace my_package.models:make --input 80xBx64 --input Bx64:bool --dtype bf16 -o chain.json
  meshplan plan --model chain.json --cluster h100-sxm:8 --global-batch 256

The factory is a function or class without arguments, or a module. A shape is that of one sample; B stands
where the batch does, first where it is left out. It needs torch (pip install 'meshplan[profiler]').
"""

SAMPLE: Final = Cut(micro_batch_size=1, sequence_length=1)
"""One sample, its elements of two bytes."""


@click.command(epilog=EXAMPLES)
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--input", "inputs", multiple=True, metavar="SHAPE[:DTYPE]", help="An input of one sample.")
@click.option(
    "--input-tokens", type=click.IntRange(min=1), multiple=True, metavar="N", help="N token numbers."
)
@click.option("--dtype", type=click.Choice(["fp32", "bf16", "fp16"]), default="fp32", help="Of the module.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False), metavar="FILE", help="Write the chain there."
)
@click.option("--json", "as_json", is_flag=True, help="Write the chain and nothing else.")
def command(
    factory: str,
    inputs: Sequence[str],
    input_tokens: Sequence[int],
    dtype: str,
    output: str | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> None:
    """Trace a torch module without running it, and show the chain of its layers."""
    shapes = [*inputs, *(f"{tokens}:int64" for tokens in input_tokens)]
    with problems_told(as_json=as_json), tempfile.TemporaryDirectory(prefix="meshplan-trace-") as folder:
        path = Path(output) if output else Path(folder) / "chain.json"
        _trace(factory, shapes, dtype=dtype, path=path)
        document = read_json(str(path))
        workload = workload_from_layers(document)
    if as_json:
        write_json(document)
    else:
        _write(workload, path=output)


def _trace(factory: str, shapes: Sequence[str], *, dtype: str, path: Path) -> None:
    """Run the tracer as a process of its own, as it loads torch."""
    if find_spec("torch") is None:
        raise _problem("tracing needs torch: pip install 'meshplan[profiler]'")
    arguments = [sys.executable, "-m", "profiler.tracing", factory, "--dtype", dtype, "--output", str(path)]
    for shape in shapes:
        arguments += ["--input", shape]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"the tracer ended with code {ended.returncode}"]
        raise _problem(lines[-1].removeprefix("tracing: "))


def _write(workload: Workload, *, path: str | None) -> None:
    click.echo(f"{count(workload.parameters)} parameters, {count(workload.buffers)} buffers; per sample:")
    headers = ("layer", "count", "parameters of each", "forward FLOP", "kept for backward", "handed on")
    write_table(headers, map(_row, workload.runs))
    if path is not None:
        click.echo(f"Plan for it: meshplan plan --model {path} --cluster h100-sxm:8 --global-batch 256")


def _row(run: LayerRun) -> tuple[str, ...]:
    layer = run.layer
    return (
        layer.kind,
        count(run.count),
        count(layer.parameters),
        format_count(layer.forward_flops_per_sample(SAMPLE.sequence_length)),
        format_bytes(saved_bytes(layer.operators(SAMPLE))),
        format_bytes(layer.output_bytes(SAMPLE)),
    )


def _problem(detail: str) -> ProblemError:
    return ProblemError(ProblemDocument.of_faults([FaultDocument(pointer="", detail=detail)]))
