"""Facts about this machine: processor, cores, memory, as far as this process may use them."""

import ctypes
import os
import platform
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
MEMORY_INFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Another one on every machine, and the same in all containers and namespaces of one."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

BYTES_PER_KIB = 1024
"""The kernel writes kB in its files and means KiB."""

USUAL_CACHE_BYTES = 32 * 2**20
"""The last-level cache where nothing tells."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of parameters in glibc's malloc.h."""
_MOST_OF_HEAP_BYTES = 32 * 2**20
"""The largest threshold that glibc takes."""
_NEVER_TRIMMED = 2**31 - 1

_NOISE = re.compile(r"\((r|tm|c)\)|@.*$|\b\d+-core\b|\bprocessor\b|\bcpu\b", re.IGNORECASE)
"""What vendors put into a model's name that doesn't tell two models apart."""


def cpu_model(cpu_info: Path = CPU_INFO) -> str:
    """Return the processor's name as the kernel gives it, else its architecture."""
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def node_name() -> str:
    """Return the name by which the network knows this machine."""
    return socket.gethostname()


def slug(name: str) -> str:
    """Return a name in lower case with dashes, without noise: "Intel(R) Xeon(R) CPU" is "intel-xeon"."""
    return re.sub(r"[^a-z0-9.]+", "-", _NOISE.sub(" ", name).lower()).strip("-")


def num_cores(cgroup: Path = CGROUP) -> int:
    """Return the cores that this process may use: its affinity, cut by the quota of its control group."""
    allowed = len(_allowed_cores())
    quota = cgroup / "cpu.max"
    limit, _, period = quota.read_text().strip().partition(" ") if quota.exists() else ("max", "", "")
    return allowed if limit == "max" else max(1, min(allowed, int(limit) // int(period)))


def cache_bytes(caches: Path = CACHES) -> int:
    """Return the size of the largest cache that the first core has a part in."""
    sizes = [int(size[:-1]) for file in caches.glob("index*/size") if (size := file.read_text().strip())]
    return max(sizes) * BYTES_PER_KIB if sizes else USUAL_CACHE_BYTES


def keep_freed_memory() -> None:
    """Have this process keep memory that it frees, as torch's allocator of an accelerator does.

    Else the C library gives the top of its heap back whenever that is free, and every page of the next
    tensors is fetched again: as long as writing it some ten times, or not at all, as the order of tensors
    happens to be. Where there is no such call the library stays as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MOST_OF_HEAP_BYTES)
        mallopt(_TRIM_THRESHOLD, _NEVER_TRIMMED)


def core_share(processes_per_node: int) -> str:
    """Return the cores of one process: whole ones, "4c", or "0.5c" where processes outnumber them."""
    cores = num_cores()
    share = (
        cores // processes_per_node if cores >= processes_per_node else round(cores / processes_per_node, 2)
    )
    return f"{share:g}c"


def processes_of_device(name: str) -> int | None:
    """Return how many processes share this node where one has as many cores as a device's name says.

    None for a device of another kind.
    """
    own = re.fullmatch(rf"cpu-{re.escape(slug(cpu_model()))}-([0-9.]+)c", name)
    return max(1, round(num_cores() / float(own.group(1)))) if own else None


def threads_per_process(processes_per_node: int) -> int:
    """Return the threads that each process has for its kernels: an even share of the cores."""
    return max(1, num_cores() // processes_per_node)


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreUse:
    """The cores that the threads of a process may run on, and the machine that has them."""

    machine: str
    cores: frozenset[int]
    threads: int


def core_use(threads: int) -> CoreUse:
    """Return the cores of this process for so many threads."""
    machine = BOOT.read_text().strip() if BOOT.exists() else node_name()
    return CoreUse(machine=machine, cores=_allowed_cores(), threads=threads)


def _allowed_cores() -> frozenset[int]:
    """Return the numbers of the cores that this process may run on; all where no system tells."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def threads_per_core(own: CoreUse, everyone: Sequence[CoreUse]) -> float:
    """Return how many busy threads a core of a process has, those of others counted; 1 at the least."""
    on_cores = [
        other.threads / len(other.cores)
        for other in everyone
        if other.machine == own.machine
        for _ in own.cores & other.cores
    ]
    return max(1.0, sum(on_cores) / len(own.cores))


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """Return the memory that the processes here may use together: all of it, or the group's limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _number(cgroup / "memory.max")
    return total if limit is None else min(total, limit)


def available_bytes(memory_info: Path = MEMORY_INFO, cgroup: Path = CGROUP) -> int:
    """Return the memory that could be taken now without swapping, in the machine and in the group."""
    free = _available_on_machine(memory_info)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    return free if limit is None or used is None else max(0, min(free, limit - used))


def _available_on_machine(memory_info: Path) -> int:
    lines = memory_info.read_text().splitlines() if memory_info.exists() else []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * BYTES_PER_KIB
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _number(path: Path) -> int | None:
    """Return the number in a file of the kernel, None where there is no file or no limit ("max")."""
    text = path.read_text().strip() if path.exists() else "max"
    return None if text == "max" else int(text)
