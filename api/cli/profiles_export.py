"""``meshplan profiles export``: a profile as a document, or as a table that spreadsheets read."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from api.cli.outcome import problems_told
from api.cli.profile_sources import given_profiles

EXAMPLES = """\b
Examples:
  meshplan profiles export my-machine/measured > PROFILE.json
  meshplan profiles export h100-sxm/published --format csv --output h100.csv
"""
COLUMNS: Final = (
    "list",
    "operator",
    "operation",
    "dtype",
    "phase",
    "shape",
    "world_size",
    "ranks_per_node",
    "payload_bytes",
    "seconds",
    "spread_seconds",
    "bytes_per_second",
    "algorithm",
    "intra_link",
    "inter_link",
    "source",
    "source_ref",
)


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="NAME|PROFILE.json")
@click.option("--format", "form", type=click.Choice(["json", "csv"]), default="json", help="What to write.")
@click.option("--output", type=click.Path(), metavar="FILE", help="Where to. [default: standard output]")
def command(name: str, form: str, output: str | None) -> None:
    """Write a profile with all its measurements: as it can be imported again, or one row a line."""
    with problems_told(as_json=False):
        (profile,) = given_profiles([name])
    document = profile.to_document()
    text = json.dumps(document, indent=1) + "\n" if form == "json" else _table(document)
    if output is None:
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text)


def _table(document: Mapping[str, Any]) -> str:
    """Return all rows below one line of headers; a shape is JSON."""
    written = io.StringIO()
    writer = csv.DictWriter(written, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for name in ("kernels", "collectives", "transfers"):
        for row in document[name]:
            shape = {"shape": json.dumps(row["shape"])} if "shape" in row else {}
            writer.writerow({"list": name, **row, **shape})
    return written.getvalue()
