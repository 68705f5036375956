"""The shapes that are measured where nobody says which: a ladder over the sizes of small to large models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.workload.operators import Collective, Phase
from profiler import host
from profiler.links import PAIR
from profiler.processes import GroupShape, Place
from profiler.shapes import CollectiveShape, KernelShape, OverlapShape, Shape, Shapes, TransferShape

BOTH_WAYS = (Phase.FORWARD, Phase.BACKWARD)
PRODUCT_PHASES = (Phase.FORWARD, Phase.INPUT_GRADIENT, Phase.WEIGHT_GRADIENT)
EVERY_OTHER = 2
"""All-reduces are measured at every size, the other collectives at every second one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rungs:
    """The sizes of one ladder: products are measured at every token count with every pair of widths."""

    tokens: tuple[int, ...]
    widths: tuple[tuple[int, int], ...]
    """Inputs and outputs of a linear layer."""
    grouped: tuple[Shape, ...]
    batched: tuple[Shape, ...]
    attention: tuple[Shape, ...]
    rows_by_columns: tuple[tuple[int, int], ...]
    vocabularies: tuple[int, ...]
    """Of the embeddings, one for each of those planes: the gradient fills the whole table."""
    parameters: tuple[int, ...]
    payload_bytes: tuple[int, ...]
    overlapped_bytes: int
    overlapped_kernel: Shape
    transfers: tuple[TransferShape, ...]


def _attention(sequence: int, *, heads: int, head_dim: int) -> Shape:
    sizes = {"batch": 1, "sequence": sequence, "heads": heads, "kv_heads": heads}
    return {**sizes, "head_dim": head_dim, "value_dim": head_dim, "causal": 1}


def _transfers(payload_bytes: int, *names: str) -> tuple[TransferShape, ...]:
    return tuple(TransferShape(operation=name, payload_bytes=payload_bytes) for name in names)


RUNGS: Mapping[str, Rungs] = {
    "cpu": Rungs(
        tokens=(128, 1024),
        widths=((256, 256), (256, 1024), (1024, 256), (512, 2048), (1024, 1024)),
        grouped=({"groups": 4, "m": 128, "n": 512, "k": 256},),
        batched=({"batch": 4, "m": 128, "n": 128, "k": 64}, {"batch": 8, "m": 512, "n": 512, "k": 64}),
        attention=(_attention(128, heads=4, head_dim=64), _attention(512, heads=8, head_dim=64)),
        rows_by_columns=((128, 256), (512, 512), (1024, 1024)),
        vocabularies=(2**9, 2**12, 2**15),
        parameters=(2**18, 2**20, 2**22),
        payload_bytes=tuple(4**exponent for exponent in range(5, 13)),
        overlapped_bytes=4 * 2**20,
        overlapped_kernel={"m": 256, "n": 256, "k": 256},
        transfers=_transfers(2**28, "host_copy", "host_copy_all", "cpu_adam_all"),
    ),
    "cuda": Rungs(
        tokens=(1024, 4096, 16384),
        widths=((1024, 1024), (4096, 4096), (4096, 14336), (14336, 4096), (8192, 8192), (8192, 28672)),
        grouped=(
            {"groups": 8, "m": 1024, "n": 4096, "k": 2048},
            {"groups": 8, "m": 4096, "n": 14336, "k": 4096},
            {"groups": 32, "m": 1024, "n": 2048, "k": 7168},
        ),
        batched=(
            {"batch": 32, "m": 2048, "n": 2048, "k": 128},
            {"batch": 128, "m": 2048, "n": 128, "k": 2048},
        ),
        attention=(_attention(2048, heads=32, head_dim=128), _attention(8192, heads=32, head_dim=128)),
        rows_by_columns=((2048, 4096), (8192, 4096), (8192, 8192)),
        vocabularies=(2**15, 2**15, 2**15),
        parameters=(2**24, 2**26, 2**28),
        payload_bytes=tuple(4**exponent for exponent in range(5, 16)),
        overlapped_bytes=256 * 2**20,
        overlapped_kernel={"m": 4096, "n": 4096, "k": 4096},
        transfers=(
            *_transfers(2**28, "h2d", "d2h", "h2d_per_gpu_parallel", "d2h_per_gpu_parallel"),
            *_transfers(2**28, "h2d_pageable", "d2h_pageable", "host_copy", "host_copy_all", "cpu_adam_all"),
        ),
    ),
}
"""By kind of device; the ladder for processors ends in about a minute on two cores."""


def default_shapes(
    kind: str,
    *,
    dtype: str,
    place: Place,
    other_precisions: Sequence[str] = (),
    drive_bytes: int | None = None,
) -> Shapes:
    """Return the ladder for a kind of device, in one precision, and products in others besides.

    Collectives are for the groups that the levels have; ``drive_bytes`` are to be read and written
    where a file for them was named.
    """
    rungs = RUNGS[kind]
    kernels = (
        *_products(rungs, dtype),
        *_attentions(rungs, dtype),
        *_passes(rungs, dtype),
        *_steps(rungs),
        KernelShape(operator="launch", dtype=dtype, phase=Phase.FORWARD, shape={}),
        *(kernel for other in other_precisions for kernel in _single_products(rungs, other)),
    )
    return Shapes(
        kernels=kernels,
        collectives=tuple(_collectives(rungs, place)),
        overlaps=tuple(_overlaps(rungs, dtype, place)),
        transfers=(*rungs.transfers, *_adam_by_threads(rungs), *_drive(drive_bytes)),
    )


def _products(rungs: Rungs, dtype: str) -> Iterator[KernelShape]:
    yield from _single_products(rungs, dtype)
    for shape in rungs.grouped:
        for phase in PRODUCT_PHASES:
            yield KernelShape(operator="grouped_matrix_product", dtype=dtype, phase=phase, shape=shape)
    for shape in rungs.batched:
        for phase in BOTH_WAYS:
            yield KernelShape(operator="batched_matrix_product", dtype=dtype, phase=phase, shape=shape)


def _single_products(rungs: Rungs, dtype: str) -> Iterator[KernelShape]:
    """Yield each linear layer's product and both of its gradients, the gradients in their own sizes."""
    for tokens in rungs.tokens:
        for inputs, outputs in rungs.widths:
            for phase, (m, n, k) in (
                (Phase.FORWARD, (tokens, outputs, inputs)),
                (Phase.INPUT_GRADIENT, (tokens, inputs, outputs)),
                (Phase.WEIGHT_GRADIENT, (outputs, inputs, tokens)),
            ):
                sizes = {"m": m, "n": n, "k": k}
                yield KernelShape(operator="matrix_product", dtype=dtype, phase=phase, shape=sizes)


def _attentions(rungs: Rungs, dtype: str) -> Iterator[KernelShape]:
    for shape in rungs.attention:
        for phase in BOTH_WAYS:
            yield KernelShape(operator="attention", dtype=dtype, phase=phase, shape=shape)


def _passes(rungs: Rungs, dtype: str) -> Iterator[KernelShape]:
    """Yield the passes that memory binds, over the activations of one layer."""
    for (rows, columns), vocabulary in zip(rungs.rows_by_columns, rungs.vocabularies, strict=True):
        plane, line = {"rows": rows, "cols": columns}, {"elems": rows * columns}
        table = {**plane, "vocabulary": vocabulary}
        for operator in ("add", "copy"):
            yield KernelShape(operator=operator, dtype=dtype, phase=Phase.FORWARD, shape=line)
        yield KernelShape(operator="permute", dtype=dtype, phase=Phase.FORWARD, shape=plane)
        for phase in BOTH_WAYS:
            for operator in ("layer_norm", "rms_norm", "softmax", "rotary", "cross_entropy"):
                yield KernelShape(operator=operator, dtype=dtype, phase=phase, shape=plane)
            yield KernelShape(operator="embedding", dtype=dtype, phase=phase, shape=table)
            for operator in ("gelu", "gated_activation", "dropout"):
                yield KernelShape(operator=operator, dtype=dtype, phase=phase, shape=line)


def _steps(rungs: Rungs) -> Iterator[KernelShape]:
    """Yield optimizer steps, which keep fp32 whatever the precision of the products."""
    for count in rungs.parameters:
        for operator in ("adam", "sgd"):
            yield KernelShape(operator=operator, dtype="fp32", phase=Phase.OPTIMIZER, shape={"params": count})


def _collectives(rungs: Rungs, place: Place) -> Iterator[CollectiveShape]:
    """Yield every collective between the groups of every level, then the largest of them at once."""
    for size, per_node in _levels(place):
        for operation in Collective:
            if operation is Collective.SEND_RECEIVE and size != PAIR:
                continue
            step = 1 if operation is Collective.ALL_REDUCE else EVERY_OTHER
            for payload_bytes in rungs.payload_bytes[::step]:
                yield _collective(operation, size, per_node, payload_bytes)
    for size, per_node in _levels(place):
        groups = _groups_at_once(size, per_node, place)
        if groups > 1:
            yield replace(
                _collective(Collective.ALL_REDUCE, size, per_node, rungs.overlapped_bytes), groups=groups
            )


def _overlaps(rungs: Rungs, dtype: str, place: Place) -> Iterator[OverlapShape]:
    """Yield what data parallelism hides behind products, between the groups of every level."""
    kernel = KernelShape(
        operator="matrix_product", dtype=dtype, phase=Phase.FORWARD, shape=rungs.overlapped_kernel
    )
    for size, per_node in _levels(place):
        for operation in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
            collective = _collective(operation, size, per_node, rungs.overlapped_bytes)
            yield OverlapShape(collective=collective, kernel=kernel)


def _levels(place: Place) -> list[tuple[int, int]]:
    """Return ranks and ranks per node of the groups that the levels have.

    Inside a node 2, 4, 8, ... ranks and all of them; between 2, 4, 8, ... and all nodes one rank of
    each, as data parallelism over tensor parallelism has them, and all ranks of each.
    """
    per_node, nodes = place.processes_per_node, place.world_size // place.processes_per_node
    inside = [(size, size) for size in _doubling(per_node)]
    between = [(count * share, share) for share in sorted({1, per_node}) for count in _doubling(nodes)]
    return [*inside, *between]


def _doubling(most: int) -> list[int]:
    """Return 2, 4, 8, ... up to ``most``, and that itself."""
    return sorted(({2**exponent for exponent in range(1, most.bit_length())} | {most}) - {0, 1})


def _groups_at_once(size: int, per_node: int, place: Place) -> int:
    """Return how many groups of a level there are room for at the same time."""
    stride = place.processes_per_node // per_node if per_node < size else 1
    return GroupShape(size=size, stride=stride).num_available(place.world_size)


def _collective(operation: Collective, size: int, per_node: int, payload_bytes: int) -> CollectiveShape:
    """Return a collective whose payload is cut to a whole number of fp32 elements for each rank."""
    unit = 4 * size
    return CollectiveShape(
        operation=operation,
        world_size=size,
        payload_bytes=max(1, payload_bytes // unit) * unit,
        ranks_per_node=per_node,
    )


def _adam_by_threads(rungs: Rungs) -> Iterator[TransferShape]:
    """Yield the optimizer on the host with 1, 2, 4, ... threads and one for each core."""
    for threads in sorted({1, *_doubling(host.num_cores())}):
        yield TransferShape(
            operation=f"cpu_adam_{threads}_threads", payload_bytes=rungs.transfers[0].payload_bytes
        )


def _drive(drive_bytes: int | None) -> tuple[TransferShape, ...]:
    return () if drive_bytes is None else _transfers(drive_bytes, "nvme_write", "nvme_read")
