"""``meshplan models``: the models that are known, and what one consists of."""

from pathlib import Path

import click

from api.catalogue import list_models, show_model
from api.cli.documents import read_json
from api.cli.outcome import problems_told, write_json
from api.cli.request_options import JSON_SUFFIX
from api.cli.tables import write_table
from api.pages.quantities import count
from api.schemas.catalogue import ModelSummaryDocument
from planner.errors import InvalidRequest
from planner.units import format_count
from planner.workload.chain import workload_from_layers
from planner.workload.huggingface import workload_from_config
from planner.workload.layers import Workload
from planner.workload.presets import preset_workload

EXAMPLES = """\b
Examples:
  meshplan models list
  meshplan models show llama-3-8b
  meshplan models show config.json --sequence 4096 --json
"""


@click.group(epilog=EXAMPLES)
def command() -> None:
    """List the models that are known, or show one."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def list_command(as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""List the models that a request may name.

    \b
    Example: meshplan models list
    """
    models = list_models()
    if as_json:
        write_json([model.model_dump(mode="json") for model in models])
        return
    rows = [(model.name, model.family, format_count(model.parameters)) for model in models]
    write_table(("name", "family", "parameters"), rows)


@command.command("show")
@click.argument("model", metavar="NAME|CONFIG.json")
@click.option("--sequence", type=int, metavar="N", help="Tokens of a sample. [default: the model's own]")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def show_command(model: str, sequence: int | None, as_json: bool) -> None:  # noqa: FBT001 - a flag
    r"""Show the parameters and the FLOP of a model, layer by layer.

    \b
    Example: meshplan models show llama-3-8b --sequence 4096
    """
    with problems_told(as_json=as_json):
        summary = show_model(_workload(model), sequence_length=sequence)
        if as_json:
            write_json(summary.model_dump(mode="json"))
        else:
            _write(summary)


def _workload(model: str) -> Workload:
    if not model.endswith(JSON_SUFFIX) and not Path(model).is_file():
        return preset_workload(model, pointer="")
    config = read_json(model)
    if not isinstance(config, dict):
        raise InvalidRequest(f"{model}: a config.json is an object", pointer="")
    if isinstance(config.get("layers"), list):
        return workload_from_layers(config, pointer="")
    return workload_from_config(config, pointer="")


def _write(summary: ModelSummaryDocument) -> None:
    click.echo(f"{summary.name} ({summary.family}): {count(summary.parameters)} parameters")
    rows = [
        (
            layer.kind,
            count(layer.count),
            count(layer.parameters),
            _flops(layer.forward_flops_per_sample),
            _flops(layer.forward_flops_per_token),
        )
        for layer in summary.layers
    ]
    headers = ("layers", "count", "parameters of each", "forward FLOP per sample", "per token")
    write_table(headers, rows)
    if summary.not_understood:
        click.echo(f"Keys that were not understood: {', '.join(summary.not_understood)}")


def _flops(value: float | None) -> str:
    return "" if value is None else format_count(value)
