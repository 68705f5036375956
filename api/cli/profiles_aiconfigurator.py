"""``meshplan profiles import-aiconfigurator``: measurements from an installed aiconfigurator."""

from pathlib import Path

import click

from api.cli.outcome import problems_told, write_json
from api.cli.workspace import opened_workspace
from api.profile_upload import store_profile
from api.schemas.catalogue import StoredProfileDocument
from planner.devices import device_by_name
from planner.errors import InvalidRequest
from planner.profiles.aiconfigurator import installed_folder, profile_documents

EXAMPLES = """\b
Examples:
  meshplan profiles import-aiconfigurator --device H100-SXM5-80GB
  meshplan profiles import-aiconfigurator --folder aiconfigurator_core/systems/data

It needs aiconfigurator-core (pip install aiconfigurator-core), or a folder with its tables.
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where its tables are. [default: the installed package]",
)
@click.option("--device", "devices", multiple=True, metavar="NAME", help="Import this device alone.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def command(folder: Path | None, devices: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001 - a flag
    """Keep the measurements that come with aiconfigurator, one profile for each device."""
    with problems_told(as_json=as_json):
        stored = _import(folder or _installed(), devices)
    if as_json:
        write_json([one.model_dump(mode="json") for one in stored])
        return
    for one in stored:
        click.echo(f"{one.name}: {one.num_accepted} measurements of {one.device}")


def _import(folder: Path, devices: tuple[str, ...]) -> list[StoredProfileDocument]:
    wanted = [device_by_name(name, pointer="").name for name in devices] or None
    with opened_workspace() as workspace:
        stored = [
            store_profile(document, profiles=workspace.profiles)
            for document in profile_documents(folder, devices=wanted)
        ]
    if not stored:
        raise InvalidRequest(f"no tables of {', '.join(devices) or 'a known device'} in {folder}", pointer="")
    return stored


def _installed() -> Path:
    folder = installed_folder()
    if folder is None:
        raise InvalidRequest("aiconfigurator is not installed: pip install aiconfigurator-core", pointer="")
    return folder
