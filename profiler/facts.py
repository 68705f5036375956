"""What a profile says of the machine, of its software and of how it was measured."""

import platform
from datetime import UTC, datetime
from typing import Any

import torch

from profiler import host
from profiler.backend import Backend
from profiler.processes import Place
from profiler.profile_file import Header
from profiler.timing import Rules


def header_for(backend: Backend, place: Place, *, name: str | None, rules: Rules) -> Header:
    """Return the head of the profile that this run writes; ``name`` is made from the device if None."""
    device = backend.device_name()
    started = datetime.now(tz=UTC).isoformat(timespec="seconds")
    return Header(
        name=name or f"{device.lower()}/measured",
        device=device,
        software=_software(backend),
        facts={
            **_machine_facts(backend, place),
            "started_at": started,
            "relative_confidence": rules.relative_confidence,
        },
        run=f"{started}, processes: {place.world_size}, threads of each: {torch.get_num_threads()}",
    )


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
