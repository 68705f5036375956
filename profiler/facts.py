"""What a profile says of the machine, of its software and of how it was measured."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch

from profiler import host
from profiler.backend import Backend
from profiler.links import DTYPE
from profiler.node import node_facts
from profiler.processes import Place, Ranks
from profiler.profile_file import Header
from profiler.timing import Rules

NETWORK = "network"
"""What joins nodes is not known to torch, only that something does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What every process told of itself: the nodes, and by rank where each process is."""

    nodes: Sequence[Mapping[str, Any]]
    places: Sequence[Mapping[str, Any]]


def met_machine(place: Place, everyone: Ranks) -> Machine:
    """Return what the processes tell of their nodes; one of each node asks its tools."""
    own = node_facts() if place.local_rank == 0 else None
    told = everyone.exchange((own, host.node_name(), place.local_rank))
    return Machine(
        nodes=tuple(node for node, _, _ in told if node is not None),
        places=tuple({"node": name, "device": device} for _, name, device in told),
    )


def header_for(backend: Backend, place: Place, machine: Machine, *, name: str | None, rules: Rules) -> Header:
    """Return the head of the profile that this run writes; ``name`` is made from the device if None."""
    device = backend.device_name()
    started = datetime.now(tz=UTC).isoformat(timespec="seconds")
    return Header(
        name=name or f"{device.lower()}/measured",
        device=device,
        software=_software(backend),
        facts={
            **_machine_facts(backend, place),
            "nodes": list(machine.nodes),
            "places": list(machine.places),
            "started_at": started,
            "relative_confidence": rules.relative_confidence,
        },
        run=f"{started}, processes: {place.world_size}, threads of each: {torch.get_num_threads()}",
        processes_per_node=place.processes_per_node,
        links={
            "dtype": DTYPE,
            "algorithm": backend.collective_library,
            "intra_link": backend.intra_link,
            "inter_link": NETWORK,
        },
    )


def identity_of(header: Header) -> dict[str, Any]:
    """Return what two runs must have in common for their figures to be pooled."""
    return {
        "device": header.device,
        **{name: header.facts[name] for name in ("processes", "processes_per_node", "threads_per_process")},
        **header.software,
    }


def _software(backend: Backend) -> dict[str, str | None]:
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {**versions, "collectives": backend.collective_library, **backend.software()}


def _machine_facts(backend: Backend, place: Place) -> dict[str, Any]:
    """Return facts of the device, which one process has, and of the machine, which all of a node share."""
    return {
        "device": {
            "name": backend.device_name(),
            "kind": backend.kind,
            "memory_bytes": backend.memory_bytes(),
            # No torch call tells a datasheet's figure; the best measured rate stands beside it.
            "peak_flops_per_second": None,
        },
        "processes": place.world_size,
        "processes_per_node": place.processes_per_node,
        "threads_per_process": torch.get_num_threads(),
        "cores": host.num_cores(),
        "memory_bytes": host.memory_bytes(),
        "cpu_model": host.cpu_model(),
        "platform": platform.platform(),
        "torch_version": torch.__version__,
    }
