"""``meshplan profiles fit``: the curves of a profile, what they leave over, and how wrong gaps are."""

from collections.abc import Iterator, Sequence

import click

from api.cli.outcome import problems_told, write_json
from api.cli.profile_sources import given_profiles
from api.cli.tables import write_table
from api.pages.profile_report import described
from planner.profile import Profile
from planner.profile_check import LeftOut, check_profile
from planner.profile_fit import Curve, fit_profile

EXAMPLES = """\b
Examples:
  meshplan profiles fit my-machine/measured
  meshplan profiles fit PROFILE.json --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="NAME|PROFILE.json")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def command(name: str, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Draw curves through what was measured, and say how far measurements lie from them.

    Below them stand the errors of each row found from the others, as the planner finds a shape that
    nobody measured.
    """
    with problems_told(as_json=as_json):
        (profile,) = given_profiles([name])
        curves = fit_profile(profile)
    if as_json:
        write_json([_document(curve) for curve in curves])
    else:
        write_table(
            ("kind", "rows", "start", "rate", "median off", "90 % below", "furthest off"),
            map(described, curves),
        )
        write_table(("kind", "rows", "median error", "90 % below", "bias"), _errors(left_out(profile)))


def left_out(profile: Profile) -> tuple[LeftOut, ...]:
    """Return how wrong each row is found from the others, kind by kind."""
    return check_profile(profile, others=()).rows_left_out


def _errors(errors: Sequence[LeftOut]) -> Iterator[tuple[str, ...]]:
    for error in errors:
        figures = (f"{error.median_abs_error:.1%}", f"{error.p90_abs_error:.1%}", f"{error.bias:+.1%}")
        yield error.kind, str(error.rows), *figures


def _document(curve: Curve) -> dict[str, object]:
    points = [
        {"label": point.label, "amount": point.amount, "seconds": point.seconds, "residual": point.residual}
        for point in curve.points
    ]
    return {
        "kind": curve.kind,
        "unit": curve.unit,
        "start_seconds": curve.start_seconds,
        "per_second": curve.per_second,
        "median_abs_residual": curve.median_abs_residual,
        "p90_abs_residual": curve.p90_abs_residual,
        "points": points,
    }
