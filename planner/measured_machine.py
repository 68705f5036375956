"""A machine that was profiled, as a cluster: its devices and links by what was measured on it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from planner.cluster import Cluster, Device, Level, NodeGroup
from planner.devices import device_by_name, device_names
from planner.errors import InvalidRequest
from planner.measurements import CollectiveRow, KernelTable
from planner.profile import Profile
from planner.units import BytesPerSecond, FlopsPerSecond, Seconds

ELEMENT_BYTES: Final[Mapping[str, int]] = {"fp32": 4, "fp16": 2, "bf16": 2}
MEMORY_PASSES: Final[Mapping[str, int]] = {"add": 3, "gated_activation": 3, "rms_norm": 2, "layer_norm": 2}
"""Elements read plus written per element of a forward pass."""
MIN_LINK_SECONDS: Final[Seconds] = 1e-9


def describes_machine(facts: Mapping[str, object]) -> bool:
    """Whether the facts of a profile say enough of the machine for a cluster of it."""
    device = facts.get("device")
    return isinstance(device, Mapping) and isinstance(device.get("memory_bytes"), int | float)


def cluster_of_machine(profile: Profile, *, num_devices: int, name: str) -> Cluster:
    """Return ``num_devices`` of the devices that a profile was measured on.

    Raises InvalidRequest for more devices than took part in the measurement, as nobody knows what
    joins those, and for a profile that lacks facts or kernels.
    """
    measured = int(profile.facts.get("processes", 1))
    if num_devices > measured:
        raise InvalidRequest(
            f"{profile.name} was measured on {measured} devices: what joins {num_devices} is not known",
            pointer="/cluster/num_devices",
            nearest_legal=(measured,),
        )
    per_node = min(int(profile.facts.get("processes_per_node", measured)), num_devices)
    if num_devices % per_node:
        nearest = num_devices // per_node * per_node
        raise InvalidRequest(
            f"num_devices ({num_devices}) must fill whole nodes of {per_node}",
            pointer="/cluster/num_devices",
            nearest_legal=(nearest, nearest + per_node),
        )
    group = NodeGroup(
        name=name,
        num_nodes=num_devices // per_node,
        devices_per_node=per_node,
        device=machine_device(profile),
        levels=tuple(_levels(profile.collectives, num_devices=num_devices, per_node=per_node)),
    )
    return Cluster(name=f"{name}:{num_devices}", node_groups=(group,))


def machine_device(profile: Profile) -> Device:
    """Return the device of a profile: by its datasheet where there is one, else by its best measured rates.

    The memory is what the machine itself reports. Raises InvalidRequest where rates or memory are missing.
    """
    facts = profile.facts.get("device")
    if not isinstance(facts, Mapping) or not describes_machine(profile.facts):
        raise _lacking(profile, "its facts do not say how much memory the device has")
    memory_bytes = float(facts["memory_bytes"])
    if profile.device in device_names():
        known = device_by_name(profile.device)
        return Device(
            name=known.name,
            memory_bytes=memory_bytes,
            peak_flops_per_second=known.peak_flops_per_second,
            memory_bandwidth_bytes_per_second=known.memory_bandwidth_bytes_per_second,
            power_watts=known.power_watts,
            vendor=known.vendor,
            architecture=known.architecture,
        )
    return Device(
        name=profile.device,
        memory_bytes=memory_bytes,
        peak_flops_per_second=_best_product_rates(profile),
        memory_bandwidth_bytes_per_second=_best_memory_rate(profile),
        architecture=str(facts.get("kind", "")),
    )


def _best_product_rates(profile: Profile) -> Mapping[str, FlopsPerSecond]:
    """Return the best rate of a forward product, 2 m n k over its time, by number format."""
    rates: dict[str, FlopsPerSecond] = {}
    for table in profile.tables("matrix_product"):
        if table.phase == "forward" and len(table):
            flops = 2.0 * np.prod([table.column(dim).astype(float) for dim in ("m", "n", "k")], axis=0)
            rates[table.dtype] = max(rates.get(table.dtype, 0.0), float(np.max(flops / table.seconds)))
    if not rates:
        raise _lacking(profile, "no matrix product was measured")
    return rates


def _best_memory_rate(profile: Profile) -> BytesPerSecond:
    """Return the best rate of a memory-bound pass, bytes read and written over its time."""
    rates = [float(np.max(_memory_rates(table))) for table in profile.kernels if _is_memory_pass(table)]
    if not rates:
        raise _lacking(profile, "no memory-bound pass was measured")
    return max(rates)


def _is_memory_pass(table: KernelTable) -> bool:
    known = table.operator in MEMORY_PASSES and table.dtype in ELEMENT_BYTES
    return known and table.phase == "forward" and len(table) > 0


def _memory_rates(table: KernelTable) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    elements = np.prod(table.shapes.astype(float), axis=1)
    moved: np.ndarray[tuple[int], np.dtype[np.float64]] = (
        MEMORY_PASSES[table.operator] * ELEMENT_BYTES[table.dtype] * elements / table.seconds
    )
    return moved


def _levels(rows: Sequence[CollectiveRow], *, num_devices: int, per_node: int) -> Iterator[Level]:
    """Yield the link inside a node and the one between nodes, where there is one."""
    inside = [row for row in rows if row.world_size <= row.ranks_per_node]
    between = [row for row in rows if row.world_size > row.ranks_per_node]
    if per_node > 1:
        yield _level("node", inside, devices=per_node)
    if num_devices > per_node:
        yield _level("network", between, devices=num_devices)


def _level(name: str, rows: Sequence[CollectiveRow], *, devices: int) -> Level:
    """Return a level by its all-reduces: the best bus bandwidth, and the start of the smallest one."""
    all_reduces = [row for row in rows if row.operation == "all_reduce" and row.world_size > 1]
    if not all_reduces:
        raise InvalidRequest(
            f"no all-reduce was measured over the {name}",
            pointer="/cluster/num_devices",
            nearest_legal=(1,),
        )
    smallest = min(all_reduces, key=lambda row: (row.payload_bytes, row.seconds))
    return Level(
        name=name,
        devices=devices,
        bandwidth_bytes_per_second=max(map(_bus_bandwidth, all_reduces)),
        # A ring passes 2 (n - 1) times from rank to rank.
        latency_seconds=max(smallest.seconds / (2 * (smallest.world_size - 1)), MIN_LINK_SECONDS),
    )


def _bus_bandwidth(row: CollectiveRow) -> BytesPerSecond:
    """Return 2 (n - 1) / n times the payload over the time: what a ring moves through each link."""
    return 2 * (row.world_size - 1) / row.world_size * row.payload_bytes / row.seconds


def _lacking(profile: Profile, reason: str) -> InvalidRequest:
    return InvalidRequest(f"no cluster can be made of {profile.name}: {reason}", pointer="/cluster/preset")
