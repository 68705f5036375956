"""``meshplan clusters``: the systems that are known, and the machines that were measured."""

import click

from api.catalogue import list_clusters, show_cluster
from api.cli.outcome import problems_told, write_json
from api.cli.tables import write_table
from api.cli.workspace import opened_workspace
from api.pages.quantities import rate
from api.schemas.catalogue import NamedClusterDocument
from api.schemas.device import DeviceDocument
from api.schemas.node_group import LevelDocument, NodeGroupDocument
from planner.units import format_bytes, format_seconds

LEVEL_HEADERS = (
    "level",
    "devices",
    "per device",
    "latency",
    "joined by",
    "oversubscribed",
    "share a link",
    "reduction",
)
EXAMPLES = """\b
Examples:
  meshplan clusters list
  meshplan clusters show h100-sxm:64
  meshplan clusters show a100-h100-sxm:32
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
    groups = shown.cluster.node_groups or ()
    for group in groups:
        name = shown.name if len(groups) == 1 else f"{shown.name}, node group {group.name}"
        nodes = "1 node" if group.num_nodes == 1 else f"{group.num_nodes} nodes"
        click.echo(f"{name}: {nodes} of {group.devices_per_node} {_device_line(group)}")
        write_table(LEVEL_HEADERS, map(_level_row, group.levels))
    for link in shown.cluster.between_groups:
        bandwidth = rate(link.bandwidth_bytes_per_second, "B/s")
        latency = format_seconds(link.latency_seconds)
        click.echo(f"Between {' and '.join(link.groups)}: {bandwidth} per device, {latency}")
    if shown.sources:
        click.echo(f"Sources: {'; '.join(shown.sources)}")


def _level_row(level: LevelDocument) -> tuple[str, ...]:
    return (
        level.name,
        str(level.devices),
        str(rate(level.bandwidth_bytes_per_second, "B/s")),
        format_seconds(level.latency_seconds),
        _shape(level),
        f"{level.oversubscription:g} : 1" if level.oversubscription > 1 else "",
        str(level.devices_per_link),
        "in the switch" if level.in_network_reduction else "",
    )


def _shape(level: LevelDocument) -> str:
    """Return how the devices of a level are joined: "switch", "torus 4x4x4"."""
    return " ".join(filter(None, (level.topology, "x".join(map(str, level.shape or ())))))


def _device_line(group: NodeGroupDocument) -> str:
    device = group.device
    if not isinstance(device, DeviceDocument):
        return device
    return f"{device.name} with {format_bytes(device.memory_bytes)}"
