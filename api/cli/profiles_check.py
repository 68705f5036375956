"""``meshplan profiles check``: how wrong figures are where nothing was measured, profile by profile."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from api.cli.outcome import problems_told, write_json
from api.cli.tables import write_table
from api.cli.workspace import opened_workspace
from planner.profile import Profile
from planner.profile_check import LeftOut, ProfileCheck, check_profile

EXAMPLES = """\b
Examples:
  meshplan profiles check h100-sxm/published
  meshplan profiles check --json
"""
ROW, DEVICE = "row", "device"
"""What was left out: one row at a time, or all rows of the device."""


@click.command(epilog=EXAMPLES)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def command(names: Sequence[str], as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Report how wrong profiles are, by default all that there are.

    Each row is found from the profile's other rows, and then from relatives of the device alone, as if
    nobody had measured it; the errors are those of the found figures against the measured ones.
    """
    with problems_told(as_json=as_json):
        checks = [check_profile(profile) for profile in _profiles(names)]
    if as_json:
        write_json([asdict(check) for check in checks])
    else:
        write_table(
            ("profile", "figure", "left out", "rows", "median error", "90 % below", "bias"),
            [row for check in checks for row in _rows(check)],
        )
        for check in checks:
            if check.rows and not check.rows_left_out:
                click.echo(f"{check.name}: {_why_nothing(check)}", err=True)


def _why_nothing(check: ProfileCheck) -> str:
    """Say why no row of a profile could be found from others."""
    if check.has_device:
        return "no row lies between others of its kind"
    return f"{check.device} is no known device, and facts.device does not say how much memory it has"


def _profiles(names: Sequence[str]) -> tuple[Profile, ...]:
    """Return the profiles of these names, or all that there are."""
    with opened_workspace(everything=not names) as workspace:
        stored = workspace.library.named(names or workspace.profiles.names())
    return tuple(entry.profile for entry in stored)


def _rows(check: ProfileCheck) -> Iterator[tuple[str, ...]]:
    for left_out, errors in ((ROW, check.rows_left_out), (DEVICE, check.device_left_out)):
        for error in errors:
            yield check.name, error.kind, left_out, *_figures(error)


def _figures(error: LeftOut) -> tuple[str, ...]:
    return (
        f"{error.rows:,}",
        f"{error.median_abs_error:.1%}",
        f"{error.p90_abs_error:.1%}",
        f"{error.bias:+.1%}",
    )
