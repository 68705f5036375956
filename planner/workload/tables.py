"""Embedding tables of a recommendation model, and how their vectors meet (Naumov et al., "DLRM", 2019).

Letters: b samples of one device, N tables, L look-ups of each, d width, p expert parallel. Tables are far
too large to repeat and have gradients for the rows that were looked up alone: with expert parallel every
rank holds d / p columns of all tables, looks them up for the samples of all p ranks, and an all-to-all
brings each rank whole vectors of its own samples (Mudigere et al., "Software-Hardware Co-design for Fast
and Scalable Training of Deep Learning Recommendation Models", 2022).
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Final

from planner.optimizers import Matrix, WeightShapes
from planner.units import Bytes, Flops
from planner.workload.dispatch import EXPERT_AXIS, EXPERT_TENSOR_AXIS
from planner.workload.layers import Cut, PlainLayer, Split
from planner.workload.operators import (
    Collective,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
    SavedTensor,
)
from planner.workload.sizes import UnfitValue, require_flag, require_size
from planner.workload.streams import VECTORS, VectorStream
from planner.workload.tensor_parallel import AXIS
from planner.workload.weights import Holding, Holdings

TABLES: Final = "tables"
INTERACTION: Final = "interaction"
"""The kinds of these layers."""
MAX_ROWS: Final = 10**9
"""Above the rows of any table that can be meant: categories are hashed to fewer."""
MAX_TABLES: Final = 10**4
WHOLE: Final = (Split(name="vectors of a sample", pieces=1, axis=AXIS),)
"""Nothing here splits over tensor parallel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TablesLayer(PlainLayer):
    """One vector of ``width`` from each of the tables, which have so many rows each (``table_rows``).

    A vector is the sum of ``lookups`` rows. ``beside`` vectors of the same width come from the layer
    before and go on with them.
    """

    kind: ClassVar[str] = TABLES
    stream: ClassVar[VectorStream] = VECTORS

    table_rows: tuple[int, ...]
    width: int
    lookups: int = 1
    beside: int = 1

    def __post_init__(self) -> None:
        if not 0 < len(self.table_rows) <= MAX_TABLES:
            raise UnfitValue(
                "table_rows", f"must be those of 1 to {MAX_TABLES} tables, not of {len(self.table_rows)}"
            )
        for rows in self.table_rows:
            require_size("table_rows", rows, largest=MAX_ROWS)
        require_size("width", self.width)
        require_size("lookups", self.lookups)
        require_size("beside", self.beside, smallest=0)

    @property
    def inputs(self) -> int:
        """Channels that come from the layer before."""
        return self.beside * self.width

    @property
    def outputs(self) -> int:
        """Channels of all vectors."""
        return (len(self.table_rows) + self.beside) * self.width

    @property
    def parameters(self) -> int:
        """All rows of all tables."""
        return sum(self.table_rows) * self.width

    def local_parameters(self, cut: Cut) -> int:
        """Return the device's columns of all tables."""
        return self.local_expert_parameters(cut)

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return all that the device holds: tables are split as experts are."""
        return sum(self.table_rows) * self._local_width(cut)

    def holdings(self, cut: Cut) -> Holdings:
        """Return the tables by shape: a pass updates the rows that it looked up, all or fewer."""
        width, samples = self._local_width(cut), cut.micro_batch_size * cut.expert_parallel
        touched = sum(min(rows, samples * self.lookups) for rows in self.table_rows) * width
        tables = tuple(Matrix(rows=rows, columns=width) for rows in self.table_rows)
        return Holdings(experts=Holding(looked_up=WeightShapes(tables=tables), touched=touched))

    def step_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - as PartlyTrained
        """Return none: neither look-ups nor their updates are matrix products."""
        return 0.0

    @property
    def idle_parameters(self) -> int:
        """Parameters of the rows that a sample does not look up."""
        return sum(max(rows - self.lookups, 0) for rows in self.table_rows) * self.width

    @property
    def splits(self) -> tuple[Split, ...]:
        """Columns over expert parallel."""
        return (
            *WHOLE,
            Split(name="embedding width", pieces=self.width, axis=EXPERT_AXIS),
            Split(name="embedding tables", pieces=1, axis=EXPERT_TENSOR_AXIS),
        )

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return none: a look-up multiplies nothing."""
        return 0.0

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of all vectors of the device's samples."""
        return float(cut.element_bytes * cut.micro_batch_size * self.outputs)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the look-ups, and the exchange of columns for samples and back."""
        return (self._lookup_pass(cut), *self._exchanges(cut))

    def _lookup_pass(self, cut: Cut) -> MemoryPass:
        """Read rows and write their sums; backward reads a gradient for every sum, and updates the rows."""
        samples = cut.micro_batch_size * cut.expert_parallel
        vectors = cut.element_bytes * samples * len(self.table_rows) * self._local_width(cut)
        return MemoryPass(
            name="lookups",
            module=Module.TABLES,
            kind="embedding",
            forward_bytes=float((self.lookups + 1) * vectors),
            backward_bytes=float((2 * self.lookups + 1) * vectors),
        )

    def _exchanges(self, cut: Cut) -> tuple[CollectivePass, ...]:
        if cut.expert_parallel == 1:
            return ()
        payload = cut.element_bytes * cut.micro_batch_size * len(self.table_rows) * self.width
        return tuple(
            CollectivePass(
                name=name,
                module=Module.TABLES,
                operation=Collective.ALL_TO_ALL,
                payload_bytes=float(payload),
                axis=EXPERT_AXIS,
                phase=phase,
            )
            for name, phase in (("vectors", Phase.FORWARD), ("vectors_gradient", Phase.BACKWARD))
        )

    def _local_width(self, cut: Cut) -> int:
        return ceil(self.width / cut.expert_parallel)


@dataclass(frozen=True, kw_only=True, slots=True)
class InteractionLayer(PlainLayer):
    """The dot products of all pairs of ``vectors``, beside the first vector itself.

    With ``with_itself`` a vector's product with itself is one of them.
    """

    kind: ClassVar[str] = INTERACTION
    stream: ClassVar[VectorStream] = VECTORS

    vectors: int
    width: int
    with_itself: bool = False

    def __post_init__(self) -> None:
        require_size("vectors", self.vectors, smallest=2, largest=MAX_TABLES)
        require_size("width", self.width)
        require_flag("with_itself", self.with_itself)

    @property
    def inputs(self) -> int:
        """Channels of all vectors."""
        return self.vectors * self.width

    @property
    def outputs(self) -> int:
        """Channels of the first vector, and one for each pair."""
        return self.width + self.vectors * (self.vectors + (1 if self.with_itself else -1)) // 2

    @property
    def parameters(self) -> int:
        """None."""
        return 0

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return none."""
        return 0

    @property
    def splits(self) -> tuple[Split, ...]:
        """One piece: every pair of a sample's vectors meets."""
        return WHOLE

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return those of the product of all vectors with all."""
        return 2.0 * self.vectors**2 * self.width

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of what it writes."""
        return float(cut.element_bytes * cut.micro_batch_size * self.outputs)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the product of each sample's vectors with themselves, and what picks the pairs."""
        size_bytes = float(cut.element_bytes * cut.micro_batch_size * self.inputs)
        moved = float(cut.element_bytes * cut.micro_batch_size * (self.vectors**2 + self.outputs))
        return (
            MatrixProduct(
                name="pairs",
                module=Module.INTERACTION,
                rows=self.vectors,
                columns=self.vectors,
                inner=self.width,
                count=cut.micro_batch_size,
                has_weights=False,
                saved=(SavedTensor(name="pairs_input", size_bytes=size_bytes, made_by=None),),
            ),
            MemoryPass(
                name="pairs_gather",
                module=Module.INTERACTION,
                kind="copy",
                forward_bytes=moved,
                backward_bytes=moved,
            ),
        )
