"""The end of a language model: final norm, and the head with its loss."""

from dataclasses import dataclass
from typing import ClassVar, Final

from planner.units import Bytes, Flops
from planner.workload.embedding import local_vocabulary
from planner.workload.layers import HEAD, NORM, Cut, PlainLayer
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
from planner.workload.passes import Norm, norm_pass
from planner.workload.sizes import (
    require_flag,
    require_size,
    require_word,
)
from planner.workload.streams import JOB, Stream
from planner.workload.tensor_parallel import entering_collectives, tensor_collective

LOSS_BYTES: Final = 4
"""The loss is computed in FP32."""


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

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of its output: the shard with sequence parallel."""
        return self.stream.cut(cut).activation_bytes(self.hidden)

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

    def output_bytes(self, cut: Cut) -> Bytes:  # noqa: ARG002 - the Layer protocol
        """Return none: the loss ends the chain."""
        return 0.0

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return logits of the device's part of the vocabulary, and the loss over all parts."""
        own = self.stream.cut(cut).of_vocabulary
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
        (4), turns softmax into the logits' gradient (12) and casts it back (4 + e). Saved: the softmax, or
        what a kernel for all of it keeps instead.
        """
        elements = cut.local_tokens * local_vocabulary(self.vocabulary, cut)
        kept_bytes = cut.keeping.kept_logit_bytes * elements
        softmax = SavedTensor(name="loss_softmax", size_bytes=kept_bytes, made_by=Module.HEAD)
        return MemoryPass(
            name="loss",
            module=Module.HEAD,
            kind="cross_entropy",
            forward_bytes=(cut.element_bytes + 3 * LOSS_BYTES) * elements,
            backward_bytes=(cut.element_bytes + 5 * LOSS_BYTES) * elements,
            working_bytes=cut.keeping.logit_bytes * elements,
            saved=(softmax,),
        )
