"""Facts about a node: processors and memory by socket, network cards, accelerators, what joins them."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiler import host

SYS = Path("/sys")
COMMAND_SECONDS = 20
BITS_PER_MEGABIT = 10**6

SLURM_NAMES = (
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_NNODES",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS_PER_NODE",
    "SLURMD_NODENAME",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_TOPOLOGY_ADDR_PATTERN",
)
"""What Slurm says of a job's place; the rest of its environment concerns the job alone."""

NVIDIA_QUERY = {
    "name": "name",
    "memory.total": "memory_mebibytes",
    "driver_version": "driver",
    "pcie.link.gen.max": "pcie_generation",
    "pcie.link.width.max": "pcie_lanes",
    "power.limit": "power_limit_watts",
    "clocks.max.sm": "max_clock_megahertz",
    "pci.bus_id": "pci_address",
}
"""What nvidia-smi is asked of each device, and what the answer is called here."""

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def node_facts(sys: Path = SYS, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return what is known of the node that this process runs on; what nothing tells is left out."""
    facts = {
        "name": host.node_name(),
        "cpu_model": host.cpu_model(),
        "cores": host.num_cores(),
        "memory_bytes": host.memory_bytes(),
        "numa": list(_numa_nodes(sys)),
        "network": list(_network_cards(sys)),
        "infiniband": list(_infiniband_ports(sys)),
        "accelerators": _nvidia_devices(),
        "accelerator_links": _accelerator_links(),
        "slurm": {name: environment[name] for name in SLURM_NAMES if name in environment},
    }
    return {name: value for name, value in facts.items() if value}


def _numa_nodes(sys: Path) -> Iterator[dict[str, Any]]:
    for folder in sorted((sys / "devices/system/node").glob("node[0-9]*")):
        memory = re.search(r"MemTotal:\s*(\d+) kB", _text(folder / "meminfo"))
        yield {
            "node": int(folder.name.removeprefix("node")),
            "cores": _text(folder / "cpulist"),
            "memory_bytes": int(memory.group(1)) * host.BYTES_PER_KIB if memory else None,
            "distances": _text(folder / "distance"),
        }


def _network_cards(sys: Path) -> Iterator[dict[str, Any]]:
    """Yield the cards that are no mere software, with the rate of their link where it is up."""
    for folder in sorted((sys / "class/net").glob("*")):
        if not (folder / "device").exists():
            continue
        speed = _text(folder / "speed")
        yield {
            "name": folder.name,
            "bits_per_second": int(speed) * BITS_PER_MEGABIT if speed.isdecimal() else None,
            "numa_node": _text(folder / "device/numa_node") or None,
        }


def _infiniband_ports(sys: Path) -> Iterator[dict[str, Any]]:
    for port in sorted((sys / "class/infiniband").glob("*/ports/*")):
        adapter = port.parents[1]
        yield {
            "name": adapter.name,
            "port": int(port.name),
            "rate": _text(port / "rate"),
            "state": _text(port / "state"),
            "layer": _text(port / "link_layer"),
            "numa_node": _text(adapter / "device/numa_node") or None,
        }


def _nvidia_devices() -> list[dict[str, str]]:
    fields = ",".join(NVIDIA_QUERY)
    answer = _answer(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
    return devices_from_query(answer)


def devices_from_query(text: str) -> list[dict[str, str]]:
    """Return the devices that an answer of nvidia-smi to `NVIDIA_QUERY` lists, one a line."""
    lines = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    return [
        dict(zip(NVIDIA_QUERY.values(), line, strict=True))
        for line in lines
        if len(line) == len(NVIDIA_QUERY)
    ]


def _accelerator_links() -> dict[str, dict[str, str]] | str:
    """Return how accelerators and network cards are joined: by pairs, or ROCm's own table as a text."""
    return links_from_topology(_answer(["nvidia-smi", "topo", "-m"])) or _answer(["rocm-smi", "--showtopo"])


def links_from_topology(text: str) -> dict[str, dict[str, str]]:
    """Return what ``nvidia-smi topo -m`` says by pairs: {"GPU0": {"GPU1": "NV18", "NIC0": "PIX"}}.

    NV18 is 18 NVLinks together; PIX one PCIe bridge, PXB several, PHB the host's, NODE within a
    socket, SYS between sockets.
    """
    rows = [line.split() for line in _ANSI.sub("", text).splitlines()]
    header = next((row for row in rows if row and row[0].startswith("GPU") and "X" not in row), [])
    names = [name for name in header if re.fullmatch(r"(GPU|NIC|mlx\w*_)\d+", name)]
    return {
        row[0]: {name: cell for name, cell in zip(names, row[1:], strict=False) if cell != "X"}
        for row in rows
        if row and row[0] in names and len(row) > len(names) and row is not header
    }


def _answer(command: Sequence[str]) -> str:
    """Return what a command says, nothing where it is not there or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        ended = subprocess.run(  # noqa: S603 - the vendor's own tools, by name
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""


def _text(path: Path) -> str:
    """Return what a file of the kernel says, nothing where it is not there or will not tell."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
