"""The collectives that can be measured: buffers made, and a call that runs the collective once on them."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import distributed

from planner.workload.operators import Collective
from profiler.backend import Backend, require_memory
from profiler.operands import InvalidShape
from profiler.processes import Failure, GroupShape, Place, Ranks
from profiler.shapes import CollectiveShape
from profiler.timing import Call, Start, Work

DTYPE = "fp32"
"""Collectives are measured in the precision that gradients are mostly reduced in, as nccl-tests do."""
BUFFERS = 2
"""What is sent, and what is received or what a library receives the others' parts in."""
SPLIT = frozenset({Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL})
"""Collectives whose payload holds one part for each rank."""
PAIR = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Buffers:
    """The buffers of one rank: ``whole`` has the payload, ``part`` one rank's share of it."""

    whole: torch.Tensor
    part: torch.Tensor
    ranks: Ranks


class _Starter(Protocol):
    """Starts a collective on the buffers of this rank."""

    def __call__(self, buffers: Buffers) -> Work: ...


def collective_call(wanted: CollectiveShape, ranks: Ranks, backend: Backend) -> Call:
    """Return a call that runs a collective once between ``ranks``, all of which must make it together.

    Raises `InvalidShape`, `MemoryError` where the buffers cannot fit, and whatever torch raises on
    making them.
    """
    start = collective_start(wanted, ranks, backend)
    return lambda: start().wait()


def collective_start(wanted: CollectiveShape, ranks: Ranks, backend: Backend) -> Start:
    """Return a call that starts a collective, which goes on by itself; see `collective_call`."""
    parts = wanted.world_size if wanted.operation in SPLIT else 1
    elements = _num_elements(wanted.payload_bytes, parts=parts)
    if wanted.operation is Collective.SEND_RECEIVE and wanted.world_size != PAIR:
        raise InvalidShape(f"send_receive is between {PAIR} ranks, not {wanted.world_size}")
    require_memory(BUFFERS * wanted.payload_bytes, backend)
    buffers = Buffers(
        whole=torch.zeros(elements * parts, device=backend.device),
        part=torch.zeros(elements, device=backend.device),
        ranks=ranks,
    )
    if wanted.operation is Collective.SEND_RECEIVE:
        return _messages(buffers)
    if wanted.operation is Collective.ALL_TO_ALL:
        return _exchanges(buffers)
    starter = STARTERS[wanted.operation]
    return lambda: starter(buffers)


def group_shape(wanted: CollectiveShape, place: Place) -> GroupShape | Failure:
    """Return which ranks run a collective here, or why there are none that could."""
    per_node, size = place.processes_per_node, wanted.world_size
    if size > place.world_size:
        return _too_few(size, place)
    shared = min(size, per_node) if wanted.ranks_per_node is None else wanted.ranks_per_node
    if shared > min(size, per_node) or size % shared or (shared < size and per_node % shared):
        detail = f"{size} ranks with {shared} per node, where a node has {per_node}"
        return Failure(reason="invalid_shape", detail=detail)
    shape = GroupShape(size=size, stride=per_node // shared if shared < size else 1, groups=wanted.groups)
    if shape.num_available(place.world_size) < wanted.groups:
        return _too_few(size * shape.stride * -(-wanted.groups // shape.stride), place)
    return shape


def _too_few(needed: int, place: Place) -> Failure:
    detail = f"{needed} processes are needed, {place.world_size} run"
    return Failure(reason="too_few_processes", detail=detail)


def bus_bytes(wanted: CollectiveShape) -> float:
    """Return the bytes on the busiest link of a ring.

    An all-reduce moves 2 (n - 1) / n of its buffer, gathers, scatters and exchanges (n - 1) / n,
    the others their payload once.
    """
    others = (wanted.world_size - 1) / wanted.world_size
    passes = {Collective.ALL_REDUCE: 2 * others, **dict.fromkeys(SPLIT, others)}
    return wanted.payload_bytes * passes.get(wanted.operation, 1.0)


def _all_reduce(buffers: Buffers) -> Work:
    return _started(distributed.all_reduce(buffers.whole, group=_group(buffers), async_op=True))


def _all_gather(buffers: Buffers) -> Work:
    return _started(_gather_into(buffers.whole, buffers.part, group=_group(buffers), async_op=True))


def _reduce_scatter(buffers: Buffers) -> Work:
    return _started(_scatter_from(buffers.part, buffers.whole, group=_group(buffers), async_op=True))


def _broadcast(buffers: Buffers) -> Work:
    first = buffers.ranks.members[0]
    return _started(distributed.broadcast(buffers.whole, first, group=_group(buffers), async_op=True))


# Until torch 2.13 the whole buffer's collectives had other names, which later ones warn of.
_gather_into = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
_scatter_from = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)

STARTERS: Mapping[Collective, _Starter] = {
    Collective.ALL_REDUCE: _all_reduce,
    Collective.ALL_GATHER: _all_gather,
    Collective.REDUCE_SCATTER: _reduce_scatter,
    Collective.BROADCAST: _broadcast,
}


def _exchanges(buffers: Buffers) -> Callable[[], Work]:
    received = torch.zeros_like(buffers.whole)
    return lambda: _started(
        distributed.all_to_all_single(received, buffers.whole, group=_group(buffers), async_op=True)
    )


def _messages(buffers: Buffers) -> Callable[[], Work]:
    """Return a call that sends one message, forth and back in turn: each waits for the one before."""
    own, group = distributed.get_rank(), _group(buffers)
    first, second = buffers.ranks.members
    turns = itertools.cycle(((first, second), (second, first)))

    def start() -> Work:
        sender, receiver = next(turns)
        if own == sender:
            return _started(distributed.isend(buffers.whole, receiver, group=group))
        return _started(distributed.irecv(buffers.whole, sender, group=group))

    return start


def _group(buffers: Buffers) -> distributed.ProcessGroup | None:
    return buffers.ranks.collective_group


def _started(work: Work | None) -> Work:
    assert work is not None, "this process is a member of the group"
    return work


def _num_elements(payload_bytes: int, *, parts: int) -> int:
    """Return the elements of one part of the payload."""
    elements, rest = divmod(payload_bytes, parts * torch.float32.itemsize)
    if rest:
        raise InvalidShape(
            f"payload_bytes ({payload_bytes}) must be a multiple of {parts * torch.float32.itemsize}"
        )
    return elements
