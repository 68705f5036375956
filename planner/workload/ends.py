"""The ends of a language model: embedding, final norm, and the head with its loss."""

from dataclasses import dataclass
from typing import ClassVar, Final

from planner.units import Flops
from planner.workload.layers import Cut
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
from planner.workload.passes import Norm, dropout_mask, norm_pass
from planner.workload.sizes import require_flag, require_probability, require_size
from planner.workload.tensor_parallel import entering_collectives, leaving_collectives, tensor_collective

LOSS_BYTES: Final = 4
"""The loss is computed in FP32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingLayer:
    """Token embedding, learned position embedding (``positions`` rows, 0 for none) and dropout."""

    kind: ClassVar[str] = "embedding"

    vocabulary: int
    hidden: int
    positions: int = 0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require_size("vocabulary", self.vocabulary)
        require_size("hidden", self.hidden)
        require_size("positions", self.positions, smallest=0)
        require_probability("dropout", self.dropout)

    @property
    def parameters(self) -> int:
        """Both tables, the vocabulary unpadded."""
        return (self.vocabulary + self.positions) * self.hidden

    def local_parameters(self, cut: Cut) -> int:
        """Return the device's rows of the padded vocabulary, and every position."""
        return (local_vocabulary(self.vocabulary, cut) + self.positions) * self.hidden

    def tied_local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return none: the head says what is tied."""
        return 0

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return none: a look-up multiplies nothing."""
        return 0.0

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return look-up, sum over the tensor-parallel shards of the vocabulary, dropout."""
        return (
            self._lookup_pass(cut),
            *leaving_collectives(product="embedding", module=Module.EMBEDDING, hidden=self.hidden, cut=cut),
            *self._dropout_pass(cut),
        )

    def _lookup_pass(self, cut: Cut) -> MemoryPass:
        """Read rows and write them, and once more for positions; backward adds rows into the gradient."""
        width = cut.element_bytes * cut.local_tokens * self.hidden
        return MemoryPass(
            name="embedding",
            module=Module.EMBEDDING,
            kind="embedding",
            forward_bytes=(5 if self.positions else 2) * width,
            backward_bytes=(6 if self.positions else 3) * width,
        )

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
class NormLayer:
    """The norm between the last block and the head."""

    kind: ClassVar[str] = "norm"

    hidden: int
    norm: Norm = Norm.RMS

    def __post_init__(self) -> None:
        require_size("hidden", self.hidden)

    @property
    def parameters(self) -> int:
        """Scale, and bias where there is one."""
        return self.norm.parameters_per_channel * self.hidden

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them: norms are replicated."""
        return self.parameters

    def tied_local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return none: nothing is tied."""
        return 0

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:  # noqa: ARG002 - the Layer protocol
        """Return none: matrix products alone count."""
        return 0.0

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the one pass."""
        return (norm_pass("final_norm", self.norm, hidden=self.hidden, cut=cut, made_by=None),)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadLayer:
    """Logits over the vocabulary and their cross entropy; ``tied`` shares the embedding's weight."""

    kind: ClassVar[str] = "head"

    vocabulary: int
    hidden: int
    tied: bool = False
    bias: bool = False

    def __post_init__(self) -> None:
        require_size("vocabulary", self.vocabulary)
        require_size("hidden", self.hidden)
        require_flag("tied", self.tied)
        require_flag("bias", self.bias)

    @property
    def parameters(self) -> int:
        """Weight (unless tied) and bias, unpadded."""
        return (0 if self.tied else self.vocabulary * self.hidden) + self.bias * self.vocabulary

    def local_parameters(self, cut: Cut) -> int:
        """Return the device's columns of the padded vocabulary (unless tied) and their bias."""
        columns = local_vocabulary(self.vocabulary, cut)
        return (0 if self.tied else columns * self.hidden) + self.bias * columns

    def tied_local_parameters(self, cut: Cut) -> int:
        """Return the weight that this device holds as well when the embedding sits on another stage."""
        return local_vocabulary(self.vocabulary, cut) * self.hidden if self.tied else 0

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return 2 s h V, the vocabulary unpadded."""
        return 2.0 * sequence_length * self.hidden * self.vocabulary

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return logits of the device's part of the vocabulary, and the loss over all parts."""
        return (
            *entering_collectives(product="logits", module=Module.HEAD, hidden=self.hidden, cut=cut),
            self._logits_product(cut),
            *self._loss_collectives(cut),
            self._loss_pass(cut),
        )

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
