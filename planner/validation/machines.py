"""The cluster of a row: its devices and nodes, on the preset system that is nearest."""

import re
from dataclasses import replace
from functools import cache
from math import prod
from typing import Final

from planner.cluster import Cluster, NodeGroup
from planner.cluster_presets import cluster_from_preset, cluster_preset_document, system_names
from planner.devices import device_by_name, device_facts, device_names
from planner.errors import AmbiguousName, UnknownName
from planner.units import GIBIBYTE
from planner.validation.networks import network_level
from planner.validation.rows import Reader, UnusableRow

SOCKETED: Final = ("nvlink", "xgmi", "infinity fabric")
"""Links that only socketed devices have."""
CARDS: Final = ("PCIE", "NVL")
"""Words of a device's name that say it is a plug-in card."""
MEMORY_TOLERANCE: Final = 0.08
"""How far the printed size of a memory lies from the driver's figure."""


def cluster_of(reader: Reader) -> Cluster:
    """Return the devices that a row ran on; UnusableRow where they are unknown or unlike."""
    num_devices = _num_devices(reader)
    system = _nearest_system(reader, device_of(reader))
    usual = int(cluster_preset_document(system)["devices_per_node"])
    per_node = min(reader.whole("gpus_per_node", default=usual), num_devices)
    if not per_node or num_devices % per_node:
        raise UnusableRow("gpus is no multiple of gpus_per_node")
    group = _nodes(system, usual=usual, per_node=per_node, num_devices=num_devices)
    inside = group.levels[0]
    if not reader.row.text("intra_link"):
        reader.assumed.add("intra_link")
    if num_devices > inside.devices:
        network = network_level(reader, group.levels[-1], devices_per_node=per_node, num_devices=num_devices)
        group = replace(group, levels=(inside, network))
    return Cluster(name=f"{system}:{num_devices}", node_groups=(group,))


def _num_devices(reader: Reader) -> int:
    """Return how many devices a row has; unsaid, as many as all of its degrees make."""
    degrees = [reader.row.whole(axis) for axis in ("tp", "pp", "dp")]
    if reader.row.text("gpus") or not all(degrees):
        return reader.required("gpus")
    return reader.default("gpus", prod(degree or 1 for degree in (*degrees, reader.row.whole("cp"))))


def device_of(reader: Reader) -> str:
    """Return the name of a row's device, which may be any of its names.

    Memory and links tell its variants apart; the largest is taken where they do not.
    """
    text = reader.row.text("device")
    if not text:
        raise UnusableRow("no device")
    if re.search(r"[+,/]", text):
        raise UnusableRow("several kinds of device, and nothing says which stage sits on which")
    variants = known = _variants(text)
    socketed = any(link in reader.row.text("intra_link").lower() for link in SOCKETED)
    if socketed and len(variants) > 1:
        variants = [name for name in variants if not any(card in name.split("-") for card in CARDS)]
    variants = _of_memory(reader, variants)
    if known and not variants:
        raise UnusableRow(f"no {text} is known with such a memory")
    variants = [name for name in variants if _systems_with(name)]
    if not variants:
        raise UnusableRow(f"device {text} is not known yet")
    return max(variants, key=_memory_bytes)


def _variants(text: str) -> list[str]:
    """Return the devices of a family, or those that a longer name or an alias may mean."""
    family = [name for name in device_names() if name.split("-")[0].lower() == text.lower()]
    if family:
        return family
    try:
        return [device_by_name(text).name]
    except AmbiguousName as error:
        return [str(name) for name in error.nearest_legal]
    except UnknownName:
        return []


def _of_memory(reader: Reader, variants: list[str]) -> list[str]:
    """Return the variants with the row's memory; all of them where it does not say."""
    gibibytes = reader.row.number("device_mem_gib")
    if not gibibytes:
        return reader.default("device_mem_gib", variants) if len(variants) > 1 else variants
    return [
        name for name in variants if abs(_memory_bytes(name) / (gibibytes * GIBIBYTE) - 1) <= MEMORY_TOLERANCE
    ]


def _memory_bytes(device: str) -> float:
    return float(device_facts(device)["memory_bytes"])


@cache
def _systems_with(device: str) -> tuple[str, ...]:
    """Return the preset systems of a device."""
    return tuple(name for name in system_names() if cluster_preset_document(name)["device"] == device)


def _nearest_system(reader: Reader, device: str) -> str:
    """Return the system of a device whose nodes and network are most like the row's."""
    per_node, network = reader.row.whole("gpus_per_node"), reader.row.text("inter_link").lower()

    def likeness(system: str) -> tuple[bool, bool]:
        document = cluster_preset_document(system)
        words = re.findall(r"[a-z]+", document["levels"][-1]["name"])
        return document["devices_per_node"] == per_node, any(word in network for word in words)

    return max(_systems_with(device), key=likeness)


def _nodes(system: str, *, usual: int, per_node: int, num_devices: int) -> NodeGroup:
    """Return the devices of a system, with other than its ``usual`` nodes where a row has them."""
    if per_node == min(usual, num_devices):
        return cluster_from_preset(system, num_devices).node_groups[0]
    group = cluster_from_preset(system, usual * num_devices).node_groups[0]
    return replace(
        group,
        num_nodes=num_devices // per_node,
        devices_per_node=per_node,
        levels=(replace(group.levels[0], devices=per_node), *group.levels[1:]),
    )
