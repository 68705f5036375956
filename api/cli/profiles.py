"""``meshplan profiles``: the measurements that predictions are made from."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import click

from api.catalogue import list_profiles, show_profile
from api.cli.documents import read_json
from api.cli.outcome import ProblemError, problems_told, write_json
from api.cli.profile_sources import is_file
from api.cli.profile_upload import client_of, send_or_say_how
from api.cli.profiles_aiconfigurator import command as aiconfigurator_command
from api.cli.profiles_calibrate import command as calibrate_command
from api.cli.profiles_check import command as check_command
from api.cli.profiles_compare import command as compare_command
from api.cli.profiles_export import command as export_command
from api.cli.profiles_fit import command as fit_command
from api.cli.profiles_report import command as report_command
from api.cli.tables import write_table
from api.cli.workspace import opened_workspace
from api.pages.quantities import count
from api.profile_upload import NothingAcceptedError, store_profile
from api.schemas.catalogue import StoredProfileDocument
from api.stores.profiles import BuiltInProfileError
from api.workspace import Workspace
from planner.errors import InvalidRequest, UnknownName
from planner.names import nearest_names

EXAMPLES = """\b
Examples:
  meshplan profiles list
  meshplan profiles show h100-sxm/published
  meshplan profiles check h100-sxm/published
  meshplan profiles calibrate steps.csv
  meshplan profiles compare node-a.json node-b.json
  meshplan profiles export my-machine/measured --format csv
  meshplan profiles report my-machine/measured --output report.html
  meshplan profiles import PROFILE.json
  meshplan profiles upload PROFILE.json --to http://planner:8000
  meshplan profiles delete my-machine/measured
"""


@click.group(epilog=EXAMPLES)
def command() -> None:
    """List, show, compare, check, calibrate, import, export, send or delete measurements."""


command.add_command(calibrate_command, "calibrate")
command.add_command(check_command, "check")
command.add_command(compare_command, "compare")
command.add_command(export_command, "export")
command.add_command(fit_command, "fit")
command.add_command(report_command, "report")
command.add_command(aiconfigurator_command, "import-aiconfigurator")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def list_command(as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""List the profiles that predictions may be made from.

    \b
    Example: meshplan profiles list
    """
    with problems_told(as_json=as_json), opened_workspace(everything=True) as workspace:
        profiles = list_profiles(workspace.profiles)
    if as_json:
        write_json([profile.model_dump(mode="json") for profile in profiles])
        return
    rows = [
        (
            profile.name,
            profile.device,
            count(profile.num_kernels),
            count(profile.num_collectives),
            count(profile.num_transfers),
            "built in" if profile.built_in else f"{profile.created_at:%Y-%m-%d %H:%M}",
            profile.digest[:12],
        )
        for profile in profiles
    ]
    write_table(("name", "device", "kernels", "collectives", "copies", "since", "digest"), rows)


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Write the whole profile document and nothing else.")
def show_command(name: str, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""Show what a profile holds.

    \b
    Example: meshplan profiles show h100-sxm/published
    """
    with problems_told(as_json=as_json), opened_workspace(everything=True) as workspace:
        profile = show_profile(name, profiles=workspace.profiles)
    if as_json:
        write_json(profile)
    else:
        _write(profile)


@command.command("import")
@click.argument("file", metavar="PROFILE.json|-")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def import_command(file: str, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""Keep a profile document; bad rows are refused one by one.

    \b
    Example: meshplan profiles import PROFILE.json
    """
    with problems_told(as_json=as_json), opened_workspace() as workspace:
        stored = keep_profile(read_json(file), workspace=workspace)
    if as_json:
        write_json(stored.model_dump(mode="json"))
        return
    state = "stored" if stored.is_new else "was there already"
    click.echo(f"{stored.name} {state}: {stored.num_accepted} measurements of {stored.device}")
    write_refused(stored)


@command.command("upload")
@click.argument("profile", metavar="NAME|PROFILE.json|-")
@click.option("--to", "url", required=True, metavar="URL", help="Address of the service.")
def upload_command(profile: str, url: str) -> None:
    r"""Send a profile to a service: in chunks, each again where the network fails.

    \b
    Examples:
      meshplan profiles upload PROFILE.json --to http://planner:8000
      meshplan profiles upload my-machine/measured --to http://planner:8000
    """
    with problems_told(as_json=False):
        document = read_json(profile) if is_file(profile) else _stored(profile)
        send_or_say_how(document, name=profile, client=client_of(url))


@command.command("delete")
@click.argument("name")
def delete_command(name: str) -> None:
    r"""Delete a profile of your own with all its measurements.

    \b
    Example: meshplan profiles delete my-machine/measured
    """
    with problems_told(as_json=False), opened_workspace(everything=True) as workspace:
        try:
            is_deleted = workspace.profiles.delete(name)
        except BuiltInProfileError as error:
            raise InvalidRequest(str(error), pointer="") from error
        if not is_deleted:
            nearest = nearest_names(name, workspace.profiles.names())
            raise UnknownName(f"no profile {name!r}", pointer="", nearest_legal=nearest)
    click.echo(f"{name} deleted")


def _stored(name: str) -> dict[str, Any]:
    with opened_workspace(everything=True) as workspace:
        return dict(show_profile(name, profiles=workspace.profiles))


def keep_profile(document: Any, *, workspace: Workspace) -> StoredProfileDocument:  # noqa: ANN401 - checked
    """Store a profile document; ProblemError where none of its rows can be used."""
    try:
        return store_profile(document, profiles=workspace.profiles)
    except NothingAcceptedError as error:
        raise ProblemError(error.problem) from error


def write_refused(stored: StoredProfileDocument) -> None:
    """Write the rows that were refused, on standard error."""
    for row in stored.refused:
        click.echo(f"refused {row.pointer}: {row.detail}", err=True)
    if stored.num_refused > len(stored.refused):
        click.echo(f"and {stored.num_refused - len(stored.refused)} more", err=True)


def _write(profile: Mapping[str, Any]) -> None:
    click.echo(f"{profile['name']}: measured on {profile['device']}")
    for title in ("software", "facts"):
        for key, value in profile[title].items():
            click.echo(f"  {title} {key}: {value}")
    kernels = Counter((row["operator"], row["dtype"], row["phase"]) for row in profile["kernels"])
    collectives = Counter((row["operation"], row["world_size"]) for row in profile["collectives"])
    write_table(
        ("operator", "precision", "phase", "rows"),
        [(*key, count(number)) for key, number in sorted(kernels.items())],
    )
    write_table(
        ("collective", "ranks", "rows"),
        [(name, str(ranks), count(number)) for (name, ranks), number in sorted(collectives.items())],
    )
