"""The collectives that can be measured: a buffer made, and a call that runs the collective once on it."""

import torch
from torch import distributed

from planner.workload.operators import Collective
from profiler.backend import Backend, require_memory
from profiler.kernels import InvalidShape, Unsupported
from profiler.processes import Ranks
from profiler.shapes import CollectiveShape
from profiler.timing import Call

DTYPE = "fp32"
"""Collectives are measured in the precision that gradients are mostly reduced in, as nccl-tests do."""


BUFFERS = 2
"""What is reduced, and what a library receives the others' parts in."""


def collective_call(wanted: CollectiveShape, ranks: Ranks, backend: Backend) -> Call:
    """Return a call that runs a collective once between ``ranks``, all of which must make it together.

    Raises `Unsupported`, `InvalidShape`, `MemoryError` where the buffer cannot fit, and whatever torch
    raises on making it.
    """
    if wanted.operation != Collective.ALL_REDUCE:
        raise Unsupported(f"{wanted.operation} is not measured yet")
    require_memory(BUFFERS * wanted.payload_bytes, backend)
    buffer = torch.zeros(_num_elements(wanted.payload_bytes), dtype=torch.float32, device=backend.device)
    return lambda: distributed.all_reduce(buffer, group=ranks.collective_group)


def bus_bytes(wanted: CollectiveShape) -> float:
    """Return the bytes on the busiest link of a ring: an all-reduce moves 2 (n - 1) / n of its buffer."""
    return wanted.payload_bytes * 2 * (wanted.world_size - 1) / wanted.world_size


def _num_elements(payload_bytes: int) -> int:
    elements, rest = divmod(payload_bytes, torch.float32.itemsize)
    if rest:
        raise InvalidShape(f"payload_bytes ({payload_bytes}) must be a multiple of {torch.float32.itemsize}")
    return elements
