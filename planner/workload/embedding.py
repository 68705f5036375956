"""The first layer of a language model: its tables of tokens, positions and types."""

from dataclasses import dataclass
from typing import ClassVar

from planner.units import Bytes, Flops
from planner.workload.layers import EMBEDDING, Cut, PlainLayer
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator
from planner.workload.passes import Norm, dropout_mask, norm_pass, replicated_product
from planner.workload.sizes import (
    require_flag,
    require_probability,
    require_size,
    require_size_or_none,
    require_word,
)
from planner.workload.streams import JOB, Stream
from planner.workload.tensor_parallel import leaving_collectives


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingLayer(PlainLayer):
    """Token embedding, learned position embedding (``positions`` rows, 0 for none), norm and dropout.

    ``types`` are the rows of a table of token types. Where the token table is only ``width`` wide, a
    matrix brings it to ``hidden``. A ``shared`` one has the token table of an embedding before it.
    """

    kind: ClassVar[str] = EMBEDDING

    vocabulary: int
    hidden: int
    positions: int = 0
    dropout: float = 0.0
    types: int = 0
    norm: Norm | None = None
    width: int | None = None
    shared: bool = False
    stream: Stream = JOB

    def __post_init__(self) -> None:
        require_size("vocabulary", self.vocabulary)
        require_size("hidden", self.hidden)
        require_size("positions", self.positions, smallest=0)
        require_size("types", self.types, smallest=0)
        require_size_or_none("width", self.width)
        require_probability("dropout", self.dropout)
        require_flag("shared", self.shared)
        if self.norm is not None:
            require_word("norm", self.norm, Norm)

    @property
    def parameters(self) -> int:
        """All tables, the vocabulary unpadded, what makes them wider, and the norm."""
        return self._parameters(0 if self.shared else self.vocabulary)

    def local_parameters(self, cut: Cut) -> int:
        """Return the device's rows of the padded vocabulary, and every position."""
        return self._parameters(0 if self.shared else local_vocabulary(self.vocabulary, cut))

    def tied_local_parameters(self, cut: Cut) -> int:
        """Return the token table that this device holds as well when the first one sits on another stage."""
        return local_vocabulary(self.vocabulary, cut) * self._table_width if self.shared else 0

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return those of the matrix that widens the table: a look-up multiplies nothing."""
        tokens = self.stream.sequences * self.stream.tokens(sequence_length)
        return 2.0 * tokens * self._widening_weights

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of its output: the shard with sequence parallel."""
        return self.stream.cut(cut).activation_bytes(self.hidden)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return look-up, sum over the tensor-parallel shards of the vocabulary, norm, dropout."""
        own = self.stream.cut(cut).of_vocabulary
        return (
            self._lookup_pass(own),
            *leaving_collectives(
                product="embedding", module=Module.EMBEDDING, hidden=self._table_width, cut=own
            ),
            *self._widening_product(own),
            *self._norm_pass(own),
            *self._dropout_pass(own),
        )

    @property
    def _table_width(self) -> int:
        return self.width or self.hidden

    def _parameters(self, rows: int) -> int:
        norm = self.norm.parameters_per_channel if self.norm else 0
        tables = rows * self._table_width + (self.positions + self.types + norm) * self.hidden
        return tables + self._widening_weights

    @property
    def _widening_weights(self) -> int:
        return 0 if self.width is None else self.width * self.hidden

    def _widening_product(self, cut: Cut) -> tuple[MatrixProduct, ...]:
        """Return the product that widens a narrow table's rows, replicated on every device."""
        if self.width is None:
            return ()
        return (
            replicated_product(
                "embedding_widening",
                Module.EMBEDDING,
                columns=self.hidden,
                inner=self.width,
                cut=cut,
                made_by=Module.EMBEDDING,
            ),
        )

    def _lookup_pass(self, cut: Cut) -> MemoryPass:
        """Read rows and write them, and once more for each further table.

        Another table's rows are read and added to what was written (3 more in either direction);
        backward adds rows into the gradient.
        """
        width = cut.element_bytes * cut.local_tokens * self.hidden
        tables = (self.positions > 0) + (self.types > 0)
        return MemoryPass(
            name="embedding",
            module=Module.EMBEDDING,
            kind="embedding",
            forward_bytes=(2 + 3 * tables) * width,
            backward_bytes=(3 + 3 * tables) * width,
        )

    def _norm_pass(self, cut: Cut) -> tuple[MemoryPass, ...]:
        if self.norm is None:
            return ()
        made_by = Module.EMBEDDING
        return (norm_pass("embedding_norm", self.norm, hidden=self.hidden, cut=cut, made_by=made_by),)

    def _dropout_pass(self, cut: Cut) -> tuple[MemoryPass, ...]:
        elements = cut.sharded_tokens * self.hidden
        mask = dropout_mask(
            "embedding_dropout", elements=elements, dropout=self.dropout, module=Module.EMBEDDING
        )
        if not mask:
            return ()
        moved_bytes = 2 * cut.element_bytes * elements + mask[0].size_bytes
        return (
            MemoryPass(
                name="embedding_dropout",
                module=Module.EMBEDDING,
                kind="dropout",
                forward_bytes=moved_bytes,
                backward_bytes=moved_bytes,
                saved=mask,
            ),
        )


def local_vocabulary(vocabulary: int, cut: Cut) -> int:
    """Return the rows of the vocabulary on one device.

    The whole is padded to a multiple of ``vocabulary_multiple`` t, as Megatron does; a multiple of
    one leaves the largest of uneven shards, as PyTorch makes them.
    """
    whole = cut.vocabulary_multiple * cut.of_vocabulary.tensor_parallel
    return -(-vocabulary // whole) * cut.vocabulary_multiple
