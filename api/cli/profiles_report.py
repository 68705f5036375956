"""``meshplan profiles report``: a page of its own with a profile's curves, coverage and what was odd."""

from importlib import resources
from pathlib import Path

import click
from jinja2 import Environment, PackageLoader, StrictUndefined

from api.cli.outcome import problems_told
from api.cli.profile_sources import given_profiles
from api.cli.profiles_fit import left_out
from api.pages.profile_report import report_context
from api.version import VERSION
from planner.profile import Profile

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
    style = (resources.files("api") / "static" / "report.css").read_text()
    report = report_context(profile, left_out=left_out(profile))
    return environment.get_template("profile_file.html").render(version=VERSION, style=style, report=report)
