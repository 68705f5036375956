"""Rows of a profile: kernels in columns, collectives and transfers one by one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.units import Bytes, BytesPerSecond, Seconds

DTYPES: Final = frozenset(
    {"fp32", "tf32", "fp32_or_tf32", "fp16", "bf16", "fp8", "fp8_block", "mxfp8", "mxfp4", "nvfp4"}
)
"""Number formats of measured kernels; ``fp32_or_tf32`` where a source leaves it open."""
PHASES: Final = frozenset({"forward", "input_gradient", "weight_gradient", "backward", "optimizer"})
OPERATIONS: Final = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive", "broadcast"}
)
REQUIRED_DIMS: Final = {
    "matrix_product": frozenset({"m", "n", "k"}),
    "grouped_matrix_product": frozenset({"groups", "m", "n", "k"}),
    "batched_matrix_product": frozenset({"batch", "m", "n", "k"}),
    "attention": frozenset({"batch", "sequence", "heads", "kv_heads", "head_dim", "value_dim", "causal"}),
}
"""Shape keys that a row of these operators has, all of them and no others; other operators name their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a row comes from: the publication (or tool), and the place inside it."""

    source: str | None = None
    source_ref: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KernelTable:
    """All rows of one operator, number format and phase, in columns.

    ``shapes`` is [rows, dims] in the order of ``dims``; ``spread_seconds`` is NaN where unknown;
    ``source_index`` points into the profile's sources.
    """

    operator: str
    dtype: str
    phase: str
    dims: tuple[str, ...]
    shapes: NDArray[np.int64]
    seconds: NDArray[np.float64]
    spread_seconds: NDArray[np.float64]
    source_index: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.seconds)

    def column(self, dim: str) -> NDArray[np.int64]:
        """Return one shape column; KeyError when the table has no such dim."""
        if dim not in self.dims:
            raise KeyError(dim)
        return self.shapes[:, self.dims.index(dim)]

    def rows(self, index: NDArray[np.int64]) -> "KernelTable":
        """Return the rows of ``index``, in that order."""
        return KernelTable(
            operator=self.operator,
            dtype=self.dtype,
            phase=self.phase,
            dims=self.dims,
            shapes=self.shapes[index],
            seconds=self.seconds[index],
            spread_seconds=self.spread_seconds[index],
            source_index=self.source_index[index],
        )

    def shape_documents(self) -> Iterator[dict[str, int]]:
        """Yield the shape of each row as a profile document says it."""
        for values in self.shapes.tolist():
            yield dict(zip(self.dims, values, strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveRow:
    """The time of one collective, its payload counted as nccl-tests count it.

    ``inter_link`` is None where all ranks sit in one node.
    """

    operation: str
    world_size: int
    ranks_per_node: int
    payload_bytes: Bytes
    seconds: Seconds
    spread_seconds: Seconds | None = None
    dtype: str | None = None
    algorithm: str | None = None
    intra_link: str | None = None
    inter_link: str | None = None
    source: Source = Source()


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferRow:
    """The rate of one copy between two tiers of memory."""

    operation: str
    payload_bytes: Bytes | None
    bytes_per_second: BytesPerSecond
    source: Source = Source()
