"""``meshplan clusters``: the systems that are known, and the machines that were measured."""

import click

from api.catalogue import list_clusters, show_cluster
from api.cli.outcome import problems_told, write_json
from api.cli.tables import write_table
from api.cli.workspace import opened_workspace
from api.pages.quantities import rate
from api.schemas.catalogue import NamedClusterDocument
from api.schemas.device import DeviceDocument
from api.schemas.node_group import NodeGroupDocument
from planner.units import format_bytes, format_seconds

EXAMPLES = """\b
Examples:
  meshplan clusters list
  meshplan clusters show h100-sxm:64
  meshplan clusters show local:2 --json > CLUSTER.json
"""


@click.group(epilog=EXAMPLES)
def command() -> None:
    """List the clusters that are known, or show one."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def list_command(as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""List the clusters that a request may name, with any number of devices.

    \b
    Example: meshplan clusters list
    """
    with problems_told(as_json=as_json), opened_workspace() as workspace:
        clusters = list_clusters(workspace.library)
    if as_json:
        write_json([cluster.model_dump(mode="json") for cluster in clusters])
        return
    rows = [
        (
            cluster.name,
            cluster.title,
            cluster.device,
            str(cluster.devices_per_node),
            "measured here" if cluster.is_measured else "",
        )
        for cluster in clusters
    ]
    write_table(("name", "system", "device", "per node", ""), rows)


@command.command("show")
@click.argument("name", metavar="NAME[:DEVICES]")
@click.option(
    "--json", "as_json", is_flag=True, help="Write the cluster as a request may say it, and nothing else."
)
def show_command(name: str, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""Show a cluster with some number of devices, by default those of one node.

    \b
    Example: meshplan clusters show h100-sxm:64
    """
    with problems_told(as_json=as_json), opened_workspace() as workspace:
        preset, _, number = name.rpartition(":") if name.rpartition(":")[2].isdecimal() else (name, "", "")
        num_devices = int(number) if number else None
        shown = show_cluster(preset, num_devices=num_devices, library=workspace.library)
    if as_json:
        write_json(shown.cluster.model_dump(mode="json", exclude_none=True))
    else:
        _write(shown)


def _write(shown: NamedClusterDocument) -> None:
    for group in shown.cluster.node_groups or ():
        click.echo(f"{shown.name}: {group.num_nodes} nodes of {group.devices_per_node} {_device_line(group)}")
        rows = [
            (
                level.name,
                str(level.devices),
                str(rate(level.bandwidth_bytes_per_second, "B/s")),
                format_seconds(level.latency_seconds),
                "in the switch" if level.in_network_reduction else "",
            )
            for level in group.levels
        ]
        write_table(("level", "devices", "per device", "latency", "reduction"), rows)
    if shown.sources:
        click.echo(f"Sources: {'; '.join(shown.sources)}")


def _device_line(group: NodeGroupDocument) -> str:
    device = group.device
    if not isinstance(device, DeviceDocument):
        return device
    return f"{device.name} with {format_bytes(device.memory_bytes)}"
