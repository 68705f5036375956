"""What a row's words for the network between nodes mean: a rate per device, and a latency."""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import isclose
from typing import Final

from planner.cluster import Level
from planner.validation.rows import Reader

BYTES_PER_GIGABIT: Final = 1e9 / 8

INFINIBAND_GIGABITS: Final[Mapping[str, float]] = {"xdr": 800, "ndr": 400, "hdr": 200, "edr": 100}
"""Rate of one port by generation; a device has one where the row does not count them."""
NODE_GIGABITS: Final[Mapping[str, float]] = {
    "efa (aws p5": 32 * 100,
    "omni-path (jean zay)": 4 * 100,
    "slingshot-11": 4 * 200,
}
"""Rates of one node under names without a rate, as the providers describe them."""
LATENCY_SECONDS: Final[Mapping[str, float]] = {"efa": 15e-6, "aws": 20e-6, "roce": 6e-6}
"""One-way latency by a word of the name: libfabric over EFA, TCP over Ethernet, RDMA over Ethernet."""


def network_level(reader: Reader, usual: Level, *, devices_per_node: int, num_devices: int) -> Level:
    """Return the network of a row between its nodes; the ``usual`` one of such systems by default."""
    usual = replace(usual, devices=num_devices)
    text = reader.row.text("inter_link").lower()
    gigabits = node_gigabits(text, devices_per_node=devices_per_node)
    if gigabits is None:
        return reader.default("inter_link", usual)
    bandwidth = gigabits * BYTES_PER_GIGABIT / devices_per_node
    generation = _generation(text)
    words = re.findall(r"[a-z]+", usual.name)
    if isclose(bandwidth, usual.bandwidth_bytes_per_second) and any(word in text for word in words):
        return usual
    latencies = (seconds for word, seconds in LATENCY_SECONDS.items() if word in text)
    return Level(
        name=f"infiniband-{generation}" if generation else re.split(r"[^a-z]+", text)[0] or "network",
        devices=num_devices,
        bandwidth_bytes_per_second=bandwidth,
        latency_seconds=next(latencies, usual.latency_seconds),
    )


def node_gigabits(text: str, *, devices_per_node: int) -> float | None:
    """Return the rate of one node in Gbit/s under the name of its network; None for a name that says none."""
    ports = re.search(r"(\d+) ?x ?(\d+) ?gb", text)
    if ports:
        return float(ports.group(1)) * float(ports.group(2))
    rate = re.search(r"([\d.]+) ?gbps", text)
    if rate:
        return float(rate.group(1))
    generation = _generation(text)
    if generation:
        count = re.search(r"x ?(\d+)", text)
        return INFINIBAND_GIGABITS[generation] * (int(count.group(1)) if count else devices_per_node)
    return next((gigabits for name, gigabits in NODE_GIGABITS.items() if name in text), None)


def _generation(text: str) -> str | None:
    return next((name for name in INFINIBAND_GIGABITS if name in text), None)
