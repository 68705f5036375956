"""The cluster of a row: its devices and nodes, on the preset system with the same device."""

import re
from dataclasses import replace
from functools import cache
from typing import Final

from planner.cluster import Cluster, Level, NodeGroup
from planner.cluster_presets import cluster_from_preset, cluster_preset_document, cluster_preset_names
from planner.devices import device_facts, device_names
from planner.profile import Profile, builtin_profiles
from planner.units import GIBIBYTE
from planner.validation.networks import network_level
from planner.validation.rows import Reader, UnusableRow

SOCKETED: Final = ("nvlink", "xgmi", "infinity fabric")
"""Links that only socketed devices have."""
CARDS: Final = ("PCIE", "NVL")
"""Words of a device's name that say it is a plug-in card."""
MEMORY_TOLERANCE: Final = 0.06
"""How far the printed size of a memory lies from the driver's figure."""


def cluster_of(reader: Reader) -> Cluster:
    """Return the devices that a row ran on; UnusableRow where they are unknown or unlike."""
    num_devices = reader.required("gpus")
    device = device_of(reader)
    preset = _preset_group(device)
    per_node = min(reader.whole("gpus_per_node", default=preset.devices_per_node), num_devices)
    if not per_node or num_devices % per_node:
        raise UnusableRow("gpus is no multiple of gpus_per_node")
    inside = replace(preset.levels[0], devices=min(_link_domain(reader, per_node), num_devices))
    levels: list[Level] = [inside]
    if num_devices > inside.devices:
        levels.append(
            network_level(reader, preset.levels[1], devices_per_node=per_node, num_devices=num_devices)
        )
    group = replace(
        preset, num_nodes=num_devices // per_node, devices_per_node=per_node, levels=tuple(levels)
    )
    return Cluster(name=f"{group.name}:{num_devices}", node_groups=(group,))


def device_of(reader: Reader) -> str:
    """Return the name of a row's device.

    Memory and links tell its variants apart; the largest is taken where they do not.
    """
    text = reader.row.text("device")
    if not text:
        raise UnusableRow("no device")
    if re.search(r"[+,/]", text):
        raise UnusableRow("several kinds of device are not priced yet")
    variants = [name for name in device_names() if name.split("-")[0].lower() == text.lower()]
    socketed = any(link in reader.row.text("intra_link").lower() for link in SOCKETED)
    if socketed and len(variants) > 1:
        variants = [name for name in variants if not any(card in name.split("-") for card in CARDS)]
    variants = [name for name in _of_memory(reader, variants) if name in _measured_devices()]
    if not variants:
        raise UnusableRow(f"device {text} is not known yet")
    return max(variants, key=_memory_bytes)


def profiles_of(device: str) -> tuple[Profile, ...]:
    """Return the published measurements of a device."""
    return tuple(profile for profile in builtin_profiles() if profile.device == device)


def _of_memory(reader: Reader, variants: list[str]) -> list[str]:
    """Return the variants with the row's memory; all of them where it does not say."""
    gibibytes = reader.row.number("device_mem_gib")
    if gibibytes is None:
        return reader.default("device_mem_gib", variants)
    return [
        name for name in variants if abs(_memory_bytes(name) / (gibibytes * GIBIBYTE) - 1) <= MEMORY_TOLERANCE
    ]


def _memory_bytes(device: str) -> float:
    return float(device_facts(device)["memory_bytes"])


@cache
def _measured_devices() -> frozenset[str]:
    return frozenset(profile.device for profile in builtin_profiles())


@cache
def _preset_group(device: str) -> NodeGroup:
    """Return two nodes of the preset system with a device."""
    for name in cluster_preset_names():
        document = cluster_preset_document(name)
        if document["device"] == device:
            return cluster_from_preset(name, 2 * document["devices_per_node"]).node_groups[0]
    raise UnusableRow(f"no system with device {device} is known yet")


def _link_domain(reader: Reader, devices_per_node: int) -> int:
    """Return how many devices the innermost link joins: a node, or what the link's name says (NVL72)."""
    text = reader.row.text("intra_link")
    if not text:
        return reader.default("intra_link", devices_per_node)
    domain = re.search(r"nvl(\d+)", text.lower())
    return int(domain.group(1)) if domain else devices_per_node
