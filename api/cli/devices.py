"""``meshplan devices``: the devices that a cluster may be of."""

from collections.abc import Mapping
from typing import Any

import click

from api.catalogue import show_device
from api.cli.outcome import problems_told, write_json
from api.cli.tables import write_table
from api.cli.workspace import opened_workspace
from api.pages.quantities import rate
from planner.units import format_bytes

EXAMPLES = """\b
Examples:
  meshplan devices list
  meshplan devices show H100-SXM
"""


@click.group(epilog=EXAMPLES)
def command() -> None:
    """List the devices that are known, or show one."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def list_command(as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""List the devices that a node group may be of.

    \b
    Example: meshplan devices list
    """
    with problems_told(as_json=as_json), opened_workspace() as workspace:
        devices = workspace.devices.list_all()
    if as_json:
        write_json(devices)
        return
    rows = [
        (
            device["name"],
            format_bytes(device["memory_bytes"]),
            _rate(device, "memory_bandwidth_bytes_per_second", "B/s"),
            _best_peak(device),
        )
        for device in devices
    ]
    write_table(("name", "memory", "bandwidth", "dense peak"), rows)


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document and nothing else.")
def show_command(name: str, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    r"""Show what is known of a device, by one of its names.

    \b
    Example: meshplan devices show "NVIDIA H100 80GB HBM3"
    """
    with problems_told(as_json=as_json), opened_workspace() as workspace:
        device = show_device(name, devices=workspace.devices)
    if as_json:
        write_json(device)
        return
    click.echo(f"{device['name']}: {format_bytes(device['memory_bytes'])}")
    click.echo(f"memory bandwidth {_rate(device, 'memory_bandwidth_bytes_per_second', 'B/s')}")
    peaks = device["peak_flops_per_second"]
    write_table(("precision", "dense peak"), [(name, str(rate(peaks[name], "FLOP/s"))) for name in peaks])
    click.echo(f"Sources: {'; '.join(device.get('sources', ()))}")


def _rate(device: Mapping[str, Any], key: str, unit: str) -> str:
    return str(rate(device[key], unit)) if device.get(key) else ""


def _best_peak(device: Mapping[str, Any]) -> str:
    """Return the peak of the widest format that trains at full rate."""
    peaks = device["peak_flops_per_second"]
    known = next((name for name in ("bf16", "fp16", "fp32") if name in peaks), None)
    return "" if known is None else f"{rate(peaks[known], 'FLOP/s')} {known}"
