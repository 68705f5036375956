"""``meshplan profiles compare``: machines of one kind beside each other, the slow ones named."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from api.cli.outcome import problems_told, write_json
from api.cli.profile_sources import given_profiles
from api.cli.tables import write_table
from planner.errors import InvalidRequest
from planner.profile import Profile
from planner.profile_compare import Compared, compare_profiles

EXAMPLES = """\b
Examples:
  meshplan profiles compare node-a.json node-b.json node-c.json
  meshplan profiles compare my-machine/january my-machine/june
"""
LEAST = 2


@click.command(epilog=EXAMPLES)
@click.argument("names", metavar="NAME|PROFILE.json...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def command(names: Sequence[str], as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Compare profiles over what all of them have measured; name what is slow.

    Times are given over those of the middle profile. Processes that were slower than the others inside
    one profile are named too.
    """
    with problems_told(as_json=as_json):
        if len(set(names)) < LEAST:
            raise InvalidRequest(f"a comparison needs {LEAST} profiles at least", pointer="")
        profiles = dict(zip(names, given_profiles(names), strict=True))
        compared = compare_profiles(profiles)
        if not compared:
            raise InvalidRequest("the profiles have no measurement in common", pointer="")
    ranks = [rank for name, profile in profiles.items() for rank in _slow_ranks(name, profile)]
    if as_json:
        rows = [asdict(one) | {"is_slow": one.is_slow} for one in compared]
        write_json({"compared": rows, "slow_processes": ranks})
    else:
        _write(compared, ranks)


def _write(compared: Sequence[Compared], ranks: Sequence[Mapping[str, Any]]) -> None:
    write_table(
        ("profile", "measurement", "rows", "time over the middle", "spread", ""),
        [
            (
                one.name,
                one.kind,
                str(one.rows),
                f"{one.relative_time:.3f}",
                f"{one.spread:.3f}",
                "slow" if one.is_slow else "",
            )
            for one in compared
        ],
    )
    for rank in ranks:
        click.echo(f"slow: {rank['profile']}, rank {rank['rank']}, {json.dumps(rank)}")


def _slow_ranks(name: str, profile: Profile) -> list[dict[str, Any]]:
    ranks = profile.facts.get("ranks", ())
    return [{"profile": name, **rank} for rank in ranks if rank.get("is_slow")]
