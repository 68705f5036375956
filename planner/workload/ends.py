"""The ends of a language model: embedding, final norm, and the head with its loss."""

from dataclasses import dataclass
from typing import ClassVar, Final

from planner.units import Flops
from planner.workload.layers import EMBEDDING, HEAD, NORM, Cut, PlainLayer
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
from planner.workload.passes import Norm, dropout_mask, norm_pass, replicated_product
from planner.workload.sizes import (
    require_flag,
    require_probability,
    require_size,
    require_size_or_none,
    require_word,
)
from planner.workload.streams import JOB, Stream
from planner.workload.tensor_parallel import entering_collectives, leaving_collectives, tensor_collective

LOSS_BYTES: Final = 4
"""The loss is computed in FP32."""


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

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return look-up, sum over the tensor-parallel shards of the vocabulary, norm, dropout."""
        own = self.stream.cut(cut)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class NormLayer(PlainLayer):
    """The norm between the last block and the head."""

    kind: ClassVar[str] = NORM

    hidden: int
    norm: Norm = Norm.RMS
    stream: Stream = JOB

    def __post_init__(self) -> None:
        require_size("hidden", self.hidden)
        require_word("norm", self.norm, Norm)

    @property
    def parameters(self) -> int:
        """Scale, and bias where there is one."""
        return self.norm.parameters_per_channel * self.hidden

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them: norms are replicated."""
        return self.parameters

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return none: matrix products alone count."""
        return 0.0

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the one pass; none without images."""
        own = self.stream.cut(cut)
        if not own.micro_batch_size:
            return ()
        return (norm_pass("final_norm", self.norm, hidden=self.hidden, cut=own, made_by=None),)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadLayer(PlainLayer):
    """Logits over the vocabulary and their cross entropy; ``tied`` shares the embedding's weight."""

    kind: ClassVar[str] = HEAD

    vocabulary: int
    hidden: int
    tied: bool = False
    bias: bool = False
    stream: Stream = JOB

    def __post_init__(self) -> None:
        require_size("vocabulary", self.vocabulary)
        require_size("hidden", self.hidden)
        require_flag("tied", self.tied)
        require_flag("bias", self.bias)

    @property
    def parameters(self) -> int:
        """Weight (unless tied) and bias, unpadded."""
        return self._parameters(self.vocabulary)

    def local_parameters(self, cut: Cut) -> int:
        """Return the device's columns of the padded vocabulary (unless tied) and their bias."""
        return self._parameters(local_vocabulary(self.vocabulary, cut))

    def tied_local_parameters(self, cut: Cut) -> int:
        """Return the weight that this device holds as well when the embedding sits on another stage."""
        return local_vocabulary(self.vocabulary, cut) * self.hidden if self.tied else 0

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return 2 s h V, the vocabulary unpadded."""
        tokens = self.stream.sequences * self.stream.tokens(sequence_length)
        return 2.0 * tokens * self.hidden * self.vocabulary

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return logits of the device's part of the vocabulary, and the loss over all parts."""
        own = self.stream.cut(cut)
        return (
            *entering_collectives(product="logits", module=Module.HEAD, hidden=self.hidden, cut=own),
            self._logits_product(own),
            *self._loss_collectives(own),
            self._loss_pass(own),
        )

    def _parameters(self, columns: int) -> int:
        weight = 0 if self.tied else columns * self.hidden
        return weight + self.bias * columns

    def _logits_product(self, cut: Cut) -> MatrixProduct:
        size_bytes = cut.element_bytes * cut.sharded_tokens * self.hidden
        return MatrixProduct(
            name="logits",
            module=Module.HEAD,
            rows=cut.local_tokens,
            columns=local_vocabulary(self.vocabulary, cut),
            inner=self.hidden,
            saved=(SavedTensor(name="logits_input", size_bytes=size_bytes, made_by=None),),
        )

    def _loss_collectives(self, cut: Cut) -> tuple[CollectivePass, ...]:
        """Maximum, target logit and sum of exponentials of every token, each an FP32 all-reduce."""
        if cut.tensor_parallel == 1:
            return ()
        return tuple(
            tensor_collective(
                name,
                Module.HEAD,
                Collective.ALL_REDUCE,
                phase=Phase.FORWARD,
                payload_bytes=LOSS_BYTES * cut.local_tokens,
            )
            for name in ("loss_maximum", "loss_target", "loss_sum")
        )

    def _loss_pass(self, cut: Cut) -> MemoryPass:
        """Cross entropy over FP32 logits, one kernel per step as PyTorch runs it.

        Forward casts (e + 4), and softmax reads and writes (8). Backward fills the target's gradient
        (4), turns softmax into the logits' gradient (12) and casts it back (4 + e). Saved: the softmax.
        """
        elements = cut.local_tokens * local_vocabulary(self.vocabulary, cut)
        softmax = SavedTensor(name="loss_softmax", size_bytes=LOSS_BYTES * elements, made_by=Module.HEAD)
        return MemoryPass(
            name="loss",
            module=Module.HEAD,
            kind="cross_entropy",
            forward_bytes=(cut.element_bytes + 3 * LOSS_BYTES) * elements,
            backward_bytes=(cut.element_bytes + 5 * LOSS_BYTES) * elements,
            saved=(softmax,),
        )


def local_vocabulary(vocabulary: int, cut: Cut) -> int:
    """Return the rows of the vocabulary on one device.

    The whole is padded to a multiple of ``vocabulary_multiple`` t, as Megatron does; a multiple of
    one leaves the largest of uneven shards, as PyTorch makes them.
    """
    whole = cut.vocabulary_multiple * cut.tensor_parallel
    return -(-vocabulary // whole) * cut.vocabulary_multiple
