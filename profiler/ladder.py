"""The shapes that are measured where nobody says which: a ladder over the sizes of small to large models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from planner.workload.operators import Collective, Phase
from profiler.shapes import CollectiveShape, KernelShape, Shape, Shapes

PASSES = (Phase.FORWARD, Phase.BACKWARD)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rungs:
    """The sizes of one ladder: products are measured at every token count with every pair of widths."""

    tokens: tuple[int, ...]
    widths: tuple[tuple[int, int], ...]
    """Inputs and outputs of a linear layer."""
    attention: tuple[Shape, ...]
    rows_by_columns: tuple[tuple[int, int], ...]
    parameters: tuple[int, ...]
    payload_bytes: tuple[int, ...]


def _attention(sequence: int, *, heads: int, head_dim: int) -> Shape:
    sizes = {"batch": 1, "sequence": sequence, "heads": heads, "kv_heads": heads}
    return {**sizes, "head_dim": head_dim, "value_dim": head_dim, "causal": 1}


RUNGS: Mapping[str, Rungs] = {
    "cpu": Rungs(
        tokens=(128, 1024),
        widths=((256, 256), (256, 1024), (1024, 256), (512, 2048), (1024, 1024)),
        attention=(_attention(128, heads=4, head_dim=64), _attention(512, heads=8, head_dim=64)),
        rows_by_columns=((128, 512), (1024, 1024)),
        parameters=(2**18, 2**22),
        payload_bytes=tuple(4**exponent for exponent in range(5, 13)),
    ),
    "cuda": Rungs(
        tokens=(1024, 4096, 16384),
        widths=((1024, 1024), (4096, 4096), (4096, 14336), (14336, 4096), (8192, 8192), (8192, 28672)),
        attention=(_attention(2048, heads=32, head_dim=128), _attention(8192, heads=32, head_dim=128)),
        rows_by_columns=((2048, 4096), (8192, 8192)),
        parameters=(2**24, 2**28),
        payload_bytes=tuple(4**exponent for exponent in range(5, 16)),
    ),
}
"""By kind of device; the ladder for processors ends within a minute on two cores."""


def default_shapes(kind: str, *, dtype: str, world_size: int) -> Shapes:
    """Return the ladder for a kind of device, in one precision; collectives for groups up to all ranks."""
    rungs = RUNGS[kind]
    kernels = [*_products(rungs, dtype), *_attentions(rungs, dtype), *_passes(rungs, dtype), *_steps(rungs)]
    return Shapes(kernels=tuple(kernels), collectives=tuple(_all_reduces(rungs, world_size)))


def _products(rungs: Rungs, dtype: str) -> Iterator[KernelShape]:
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
        for phase in PASSES:
            yield KernelShape(operator="attention", dtype=dtype, phase=phase, shape=shape)


def _passes(rungs: Rungs, dtype: str) -> Iterator[KernelShape]:
    """Yield the passes that memory binds, over the activations of one layer."""
    for rows, columns in rungs.rows_by_columns:
        plane, line = {"rows": rows, "cols": columns}, {"elems": rows * columns}
        yield KernelShape(operator="add", dtype=dtype, phase=Phase.FORWARD, shape=line)
        for phase in PASSES:
            for operator in ("layer_norm", "rms_norm", "softmax"):
                yield KernelShape(operator=operator, dtype=dtype, phase=phase, shape=plane)
            for operator in ("gelu", "gated_activation"):
                yield KernelShape(operator=operator, dtype=dtype, phase=phase, shape=line)


def _steps(rungs: Rungs) -> Iterator[KernelShape]:
    """Yield optimizer steps, which keep fp32 whatever the precision of the products."""
    for count in rungs.parameters:
        yield KernelShape(operator="adam", dtype="fp32", phase=Phase.OPTIMIZER, shape={"params": count})


def _all_reduces(rungs: Rungs, world_size: int) -> Iterator[CollectiveShape]:
    """Yield all-reduces of every size between 2, 4, 8, ... ranks and between all of them."""
    powers = {2**exponent for exponent in range(1, world_size.bit_length())}
    for size in sorted(powers | {world_size} - {1}):
        for payload_bytes in rungs.payload_bytes:
            yield CollectiveShape(
                operation=Collective.ALL_REDUCE, world_size=size, payload_bytes=payload_bytes
            )
