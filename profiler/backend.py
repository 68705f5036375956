"""What differs from device to device: its clock, memory, library for collectives and names."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from planner.units import Bytes, Seconds
from profiler import host
from profiler.timing import AtOnce, Call, HostStopwatch, Start, Stopwatch

MEMORY_FRACTION = 0.8
"""Of the available memory, what operands and results may take; the rest is left to work space."""

MILLISECONDS_PER_SECOND = 1000
"""torch gives the time between two events in milliseconds."""

NVIDIA_DRIVER_VERSION = Path("/proc/driver/nvidia/version")

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
FP8_CAPABILITY = (8, 9)
"""NVIDIA's first tensor cores with eight-bit floats: Ada; Hopper is (9, 0)."""


class Backend(Protocol):
    """A kind of device, as the measurements see it. A process has one device of it."""

    @property
    def kind(self) -> str:
        """The name that torch and the command line have for this kind."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        ...

    @property
    def stopwatch(self) -> Stopwatch:
        """The clock that times work on this device."""
        ...

    @property
    def collective_library(self) -> str:
        """The library that runs collectives between devices of this kind, as torch calls it."""
        ...

    @property
    def intra_link(self) -> str | None:
        """What joins the ranks of one node, None where torch cannot tell."""
        ...

    @property
    def default_dtype(self) -> str:
        """The precision that a training run on this device would take."""
        ...

    @property
    def cache_bytes(self) -> int:
        """What the largest cache of such a device may hold; operands in turn fill as much."""
        ...

    @property
    def other_precisions(self) -> tuple[str, ...]:
        """The precisions of products that a training run may take beside the default one."""
        ...

    def device_name(self) -> str:
        """Return the name by which a cluster calls this device."""
        ...

    def memory_bytes(self) -> Bytes:
        """Return the memory that one process has for its tensors, whatever of it is in use now."""
        ...

    def available_bytes(self) -> Bytes:
        """Return the memory that this process may still take."""
        ...

    def use_precision(self, name: str) -> torch.dtype | None:
        """Return torch's type for a precision and set how fp32 products round; None if not had here."""
        ...

    def software(self) -> dict[str, str | None]:
        """Return the versions that speed depends on beside torch's own."""
        ...

    def release(self) -> None:
        """Give memory that is no longer used back to the device."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuBackend:
    """The processor: a "device" is the share of cores and memory of one of the processes on it."""

    processes_per_node: int
    kind: str = "cpu"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    stopwatch: Stopwatch = field(default_factory=HostStopwatch)
    collective_library: str = "gloo"
    intra_link: str | None = "loopback"
    default_dtype: str = "fp32"
    cache_bytes: int = field(default_factory=host.cache_bytes)
    other_precisions: tuple[str, ...] = ()

    def device_name(self) -> str:
        """Return model and cores of one process: half of a machine is another device than all of it."""
        return f"cpu-{host.slug(host.cpu_model())}-{host.core_share(self.processes_per_node)}"

    def memory_bytes(self) -> Bytes:
        """Return one process's share of the memory."""
        return host.memory_bytes() // self.processes_per_node

    def available_bytes(self) -> Bytes:
        """Return one process's share of the memory that is free."""
        return host.available_bytes() // self.processes_per_node

    def use_precision(self, name: str) -> torch.dtype | None:
        """Return torch's type for a precision, None for those that only accelerators have."""
        return _DTYPES.get(name)

    def software(self) -> dict[str, str | None]:
        """Return the instruction set that torch uses."""
        return {"cpu_capability": torch.backends.cpu.get_cpu_capability()}

    def release(self) -> None:
        """Do nothing: memory of the host goes back by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventStopwatch:
    """Times work on an accelerator by events in its queue, which leaves out launching all but the first."""

    def seconds(self, call: Call, *, times: int) -> Seconds:
        """Return how long the device takes for ``times`` calls in a row, all of them together."""
        started, ended = _event(), _event()
        torch.cuda.synchronize()
        started.record()
        for _ in range(times):
            call()
        ended.record()
        return _seconds_between(started, ended)

    def together(self, start: Start, call: Call, *, times: int) -> AtOnce:
        """Return how long a collective takes on a stream beside that of ``times`` calls."""
        started, called, communicated = _event(), _event(), _event()
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        torch.cuda.synchronize()
        started.record()
        beside.wait_event(started)
        with torch.cuda.stream(beside):
            start().wait()
            communicated.record()
        for _ in range(times):
            call()
        called.record()
        return AtOnce(
            collective_seconds=_seconds_between(started, communicated),
            calls_seconds=_seconds_between(started, called),
        )


def _seconds_between(started: torch.cuda.Event, ended: torch.cuda.Event) -> Seconds:
    ended.synchronize()
    milliseconds: float = started.elapsed_time(ended)
    return milliseconds / MILLISECONDS_PER_SECOND


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaBackend:
    """An accelerator that torch drives as ``cuda``: NVIDIA's, and AMD's through ROCm."""

    local_rank: int
    kind: str = "cuda"
    stopwatch: Stopwatch = field(default_factory=EventStopwatch)
    collective_library: str = "nccl"
    intra_link: str | None = None
    cache_bytes: int = 256 * 2**20

    @property
    def device(self) -> torch.device:
        """The device numbered as the process is on its node."""
        return torch.device("cuda", self.local_rank)

    @property
    def default_dtype(self) -> str:
        """The precision that a training run takes: bf16, fp16 where bf16 is only emulated."""
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"

    @property
    def other_precisions(self) -> tuple[str, ...]:
        """Eight-bit floats where the device has them."""
        return ("fp8",) if self._eight_bits() else ()

    def device_name(self) -> str:
        """Return the driver's name with dashes, as Kubernetes labels a node's product."""
        return torch.cuda.get_device_name(self.device).replace(" ", "-")

    def memory_bytes(self) -> Bytes:
        """Return the memory that the driver reports."""
        return torch.cuda.mem_get_info(self.device)[1]

    def available_bytes(self) -> Bytes:
        """Return what the driver has free and what torch's allocator keeps unused."""
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + kept

    def use_precision(self, name: str) -> torch.dtype | None:
        """Return torch's type for a precision; tf32 is fp32 whose products may round."""
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        if name == "fp8":
            return self._eight_bits()
        return torch.float32 if name == "tf32" else _DTYPES.get(name)

    def _eight_bits(self) -> torch.dtype | None:
        """Return torch's type for eight-bit floats; AMD's third generation has one of its own."""
        if torch.version.hip:
            name = torch.cuda.get_device_properties(self.device).gcnArchName
            own = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}
            return own.get(name.partition(":")[0])
        has_them = torch.cuda.get_device_capability(self.device) >= FP8_CAPABILITY
        return torch.float8_e4m3fn if has_them else None

    def software(self) -> dict[str, str | None]:
        """Return the versions of driver, toolkit and the collective library."""
        driver = NVIDIA_DRIVER_VERSION
        return {
            "driver": driver.read_text().splitlines()[0] if driver.exists() else None,
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "nccl": _nccl_version(),
        }

    def release(self) -> None:
        """Empty torch's cache, so that one shape's leftovers don't crowd out the next."""
        torch.cuda.empty_cache()


def _nccl_version() -> str:
    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return ".".join(str(part) for part in version)


def detect_kind(wanted: str) -> str:
    """Return ``cpu`` or ``cuda`` for ``auto``; raise ValueError for an accelerator that isn't here."""
    is_here = torch.cuda.is_available()
    if wanted == "cuda" and not is_here:
        raise ValueError(
            f"torch {torch.__version__} sees no accelerator here; --device cpu measures the processor"
        )
    return "cuda" if is_here and wanted != "cpu" else "cpu"


def num_devices(kind: str) -> int:
    """Return how many devices of a kind this machine has; a processor counts as one per core."""
    return torch.cuda.device_count() if kind == "cuda" else host.num_cores()


def open_backend(kind: str, *, local_rank: int, processes_per_node: int) -> Backend:
    """Return the device of this process, made the current one, with its share of the cores."""
    torch.set_num_threads(host.threads_per_process(processes_per_node))
    if kind == "cpu":
        host.keep_freed_memory()
        return CpuBackend(processes_per_node=processes_per_node)
    torch.cuda.set_device(local_rank)
    return CudaBackend(local_rank=local_rank)


def require_memory(needed_bytes: Bytes, backend: Backend) -> None:
    """Raise MemoryError before the device does: a host grants more than it has and kills who uses it."""
    available_bytes = backend.available_bytes()
    if needed_bytes > available_bytes * MEMORY_FRACTION:
        raise MemoryError(f"needs {needed_bytes:.0f} B, where {available_bytes:.0f} B are available")


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that memory ran out; the host's allocator says so in words only."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
