"""Copies between host and device, work of the host itself, and its drive: bytes moved by a call."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from planner.units import Bytes
from profiler import host
from profiler.backend import MEMORY_FRACTION, Backend, require_memory
from profiler.drive import direct_file
from profiler.operands import Unsupported
from profiler.shapes import TransferShape
from profiler.timing import Call, HostStopwatch, Stopwatch

ADAM_BYTES_PER_PARAMETER = 4 * 4 + 3 * 4
"""Weight, gradient and both moments are read, all but the gradient written, each in fp32."""
COPY_MOVES = 2
"""A copy reads its payload and writes it."""
THREADS_MARK = "_threads"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A call that moves the bytes of a transfer once, and the clock that times it."""

    call: Call
    stopwatch: Stopwatch


def runs_alone(wanted: TransferShape) -> bool:
    """Whether the first process measures it while all others are silent."""
    return not wanted.operation.endswith(("_parallel", "_all"))


@contextmanager
def prepared_transfer(
    wanted: TransferShape, backend: Backend, *, drive_file: Path | None
) -> Iterator[Prepared]:
    """Give what measures a transfer, and let go of it afterwards.

    Raises `Unsupported` where there is nothing of the kind, `MemoryError` where the operands cannot
    fit, and `OSError` where a drive refuses.
    """
    name, threads = _name_and_threads(wanted.operation)
    if name in DRIVE_CALLS:
        if drive_file is None:
            raise Unsupported(f"{wanted.operation} needs a file on the drive: name one with --drive-file")
        with direct_file(drive_file, num_bytes=wanted.payload_bytes) as file:
            call = file.write if DRIVE_CALLS[name] else file.read
            yield Prepared(call=call, stopwatch=HostStopwatch())
    elif name in HOST_CALLS:
        _require_host_memory(HOST_CALLS[name].memory_over_payload * wanted.payload_bytes)
        with _threads(threads):
            yield Prepared(call=HOST_CALLS[name].make(wanted.payload_bytes), stopwatch=HostStopwatch())
    elif name in COPIES and backend.kind != "cpu":
        require_memory(wanted.payload_bytes, backend)
        yield Prepared(call=_copy(COPIES[name], wanted, backend), stopwatch=backend.stopwatch)
    else:
        raise Unsupported(f"{wanted.operation} is not measured on {backend.kind}")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Copy:
    """A copy between host and device: which way, and whether the host's memory is pinned."""

    to_device: bool
    pinned: bool


COPIES: Mapping[str, _Copy] = {
    "h2d": _Copy(to_device=True, pinned=True),
    "d2h": _Copy(to_device=False, pinned=True),
    "h2d_pageable": _Copy(to_device=True, pinned=False),
    "d2h_pageable": _Copy(to_device=False, pinned=False),
    "h2d_per_gpu_parallel": _Copy(to_device=True, pinned=True),
    "d2h_per_gpu_parallel": _Copy(to_device=False, pinned=True),
}
"""By name; the last two by all devices at once, the rate being that of one."""

DRIVE_CALLS: Mapping[str, bool] = {"nvme_read": False, "nvme_write": True}
"""By name, whether the drive is written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _HostCall:
    """Work of the host alone, from a payload, and the memory that it takes over that payload."""

    make: Callable[[int], Call]
    memory_over_payload: float


def _host_copy(payload_bytes: int) -> Call:
    source = torch.randn(max(1, payload_bytes // COPY_MOVES // torch.float32.itemsize))
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _cpu_adam(payload_bytes: int) -> Call:
    weight = torch.randn(max(1, payload_bytes // ADAM_BYTES_PER_PARAMETER)).requires_grad_()
    weight.grad = torch.randn_like(weight)
    return torch.optim.AdamW([weight], fused=True).step


HOST_CALLS: Mapping[str, _HostCall] = {
    "host_copy": _HostCall(make=_host_copy, memory_over_payload=1.0),
    "host_copy_all": _HostCall(make=_host_copy, memory_over_payload=1.0),
    "cpu_adam": _HostCall(make=_cpu_adam, memory_over_payload=4 * 4 / ADAM_BYTES_PER_PARAMETER),
    "cpu_adam_all": _HostCall(make=_cpu_adam, memory_over_payload=4 * 4 / ADAM_BYTES_PER_PARAMETER),
}
"""By name; ``_all`` by all processes at once, each with its share of the cores."""


def _copy(kind: _Copy, wanted: TransferShape, backend: Backend) -> Call:
    on_host = torch.empty(wanted.payload_bytes, dtype=torch.uint8, pin_memory=kind.pinned)
    on_device = torch.empty(wanted.payload_bytes, dtype=torch.uint8, device=backend.device)
    source, target = (on_host, on_device) if kind.to_device else (on_device, on_host)
    return lambda: target.copy_(source, non_blocking=kind.pinned)


def _require_host_memory(needed_bytes: Bytes) -> None:
    available_bytes = host.available_bytes() / host.num_cores()
    if needed_bytes > available_bytes * MEMORY_FRACTION:
        raise MemoryError(f"needs {needed_bytes:.0f} B, where a core has {available_bytes:.0f} B")


def _name_and_threads(operation: str) -> tuple[str, int | None]:
    """Return "cpu_adam" and 4 for "cpu_adam_4_threads"; without threads, those that a process has."""
    if not operation.endswith(THREADS_MARK):
        return operation, None
    name, _, number = operation.removesuffix(THREADS_MARK).rpartition("_")
    if not number.isdecimal() or not 1 <= int(number) <= host.num_cores():
        raise Unsupported(f"{operation}: this machine has {host.num_cores()} cores")
    return name, int(number)


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
