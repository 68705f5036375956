"""``meshplan profiles report``: a page of its own with a profile's curves, coverage and what was odd."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from jinja2 import Environment, PackageLoader, StrictUndefined

from api.cli.curve_plot import plot_of
from api.cli.outcome import problems_told
from api.cli.profile_sources import given_profiles
from api.cli.profiles_fit import described, left_out
from api.version import VERSION
from planner.profile import Profile
from planner.profile_fit import fit_profile
from planner.units import format_count, format_seconds

EXAMPLES = """\b
Examples:
  meshplan profiles report my-machine/measured --output report.html
  meshplan profiles report PROFILE.json --output report.html
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="NAME|PROFILE.json")
@click.option("--output", type=click.Path(), required=True, metavar="FILE.html", help="Where to write it.")
def command(name: str, output: str) -> None:
    """Write a page that shows what was measured: curves with what they leave over, coverage, oddities."""
    with problems_told(as_json=False):
        (profile,) = given_profiles([name])
        Path(output).write_text(report_page(profile))
    click.echo(f"{output} written", err=True)


def report_page(profile: Profile) -> str:
    """Return the page as HTML that needs nothing else."""
    environment = Environment(
        loader=PackageLoader("api"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["time"] = format_seconds
    curves = fit_profile(profile)
    return environment.get_template("profile.html").render(
        version=VERSION,
        profile=profile,
        facts=_plain_facts(profile.facts),
        coverage=_coverage(profile),
        curves=[described(curve) for curve in curves],
        plots=[plot_of(curve) for curve in curves],
        left_out=left_out(profile),
        ranks=profile.facts.get("ranks", ()),
        overlaps=profile.facts.get("overlaps", ()),
        skipped=profile.facts.get("skipped", ()),
    )


def _plain_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is said in one word; lists and tables have places of their own."""
    return [(key, str(value)) for key, value in facts.items() if isinstance(value, str | int | float)]


def _coverage(profile: Profile) -> list[tuple[str, int, str]]:
    """Return what was measured, how often, and from which size to which."""
    kernels = [
        (f"{table.operator} {table.dtype} {table.phase}", len(table), _range(table.shapes.prod(axis=1)))
        for table in profile.kernels
    ]
    links: dict[str, list[float]] = {}
    for row in profile.collectives:
        links.setdefault(f"{row.operation}, {row.world_size} ranks", []).append(row.payload_bytes)
    copies = Counter(row.operation for row in profile.transfers)
    return [
        *kernels,
        *((name, len(sizes), f"{_range(sizes)}B") for name, sizes in sorted(links.items())),
        *((name, number, "") for name, number in sorted(copies.items())),
    ]


def _range(sizes: Sequence[float]) -> str:
    least, most = float(min(sizes)), float(max(sizes))
    return format_count(least) if least == most else f"{format_count(least)} to {format_count(most)}"
