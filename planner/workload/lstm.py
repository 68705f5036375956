"""A layer of long short-term memory (Hochreiter and Schmidhuber, 1997), as cuDNN runs it.

Letters: b sequences of s tokens, h hidden. The input products of all steps are one product; the recurrent
product of a step, b x 4 h x h, waits for the step before, and so does the pass over its gates
(Appleyard et al., "Optimizing Performance of Recurrent Neural Networks on GPUs", 2016).
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from planner.units import Bytes, Flops
from planner.workload.layers import Cut, PlainLayer, Split
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator, SavedTensor
from planner.workload.passes import dropout_mask
from planner.workload.sizes import require_flag, require_probability, require_size
from planner.workload.streams import JOB, Stream
from planner.workload.tensor_parallel import AXIS

LSTM: Final = "lstm"
"""The kind of the layer."""
GATES: Final = 4
"""Input, forget, cell and output."""
MODULE: Final = Module.RECURRENCE


@dataclass(frozen=True, kw_only=True, slots=True)
class LstmLayer(PlainLayer):
    """Four gates of width ``hidden`` over ``inputs`` channels and over what the step before wrote.

    A ``bidirectional`` one has a second set of weights that reads from the end, and writes twice as many
    channels. ``dropout`` is that of its output. Its steps depend on one another and on all channels:
    neither tensor nor context parallel splits it.
    """

    kind: ClassVar[str] = LSTM

    inputs: int
    hidden: int
    bidirectional: bool = False
    bias: bool = True
    dropout: float = 0.0
    stream: Stream = JOB

    def __post_init__(self) -> None:
        require_size("inputs", self.inputs)
        require_size("hidden", self.hidden)
        require_flag("bidirectional", self.bidirectional)
        require_flag("bias", self.bias)
        require_probability("dropout", self.dropout)

    @property
    def outputs(self) -> int:
        """Channels that it writes."""
        return self._directions * self.hidden

    @property
    def parameters(self) -> int:
        """Weights of inputs and of hidden states, and a bias of each, as PyTorch has them."""
        return self._directions * GATES * self.hidden * (self.inputs + self.hidden + 2 * self.bias)

    def local_parameters(self, cut: Cut) -> int:  # noqa: ARG002 - the Layer protocol
        """Return all of them."""
        return self.parameters

    @property
    def splits(self) -> tuple[Split, ...]:
        """One piece of its channels, and one of its sequence."""
        return (
            Split(name="recurrent layer", pieces=1, axis=AXIS),
            Split(name="recurrent sequence", pieces=1, axis="context_parallel"),
        )

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return 2 per token and weight."""
        tokens = self.stream.sequences * self.stream.tokens(sequence_length)
        return 2.0 * tokens * self._directions * GATES * self.hidden * (self.inputs + self.hidden)

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes of its output: whole, as nothing splits it."""
        own = self.stream.cut(cut)
        return float(own.element_bytes * own.local_tokens * self.outputs)

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order; none without images."""
        own = self.stream.cut(cut)
        if not own.micro_batch_size:
            return ()
        return (
            self._input_product(own),
            self._step_product(own),
            self._step_pass(own),
            *self._dropout_pass(own),
        )

    def _input_product(self, cut: Cut) -> MatrixProduct:
        size_bytes = float(cut.element_bytes * cut.local_tokens * self.inputs)
        return MatrixProduct(
            name="lstm_input",
            module=MODULE,
            rows=cut.local_tokens,
            columns=self._directions * GATES * self.hidden,
            inner=self.inputs,
            saved=(SavedTensor(name="lstm_input_input", size_bytes=size_bytes, made_by=None),),
        )

    def _step_product(self, cut: Cut) -> MatrixProduct:
        """Directions run one after the other; what a step reads is the output, which the next layer saves."""
        return MatrixProduct(
            name="lstm_step",
            module=MODULE,
            rows=cut.micro_batch_size,
            columns=GATES * self.hidden,
            inner=self.hidden,
            repeats=self._directions * cut.sequence_length,
        )

    def _step_pass(self, cut: Cut) -> MemoryPass:
        """Add both products (8 h), update cell and hidden state (3 h), keep gates and cell (4 h, h).

        Backward reads those, the cell before, two gradients (8 h), and writes those of gates and cell (5 h).
        """
        step = cut.element_bytes * cut.micro_batch_size * self.hidden
        repeats = self._directions * cut.sequence_length
        kept = float((GATES + 1) * step * repeats)
        return MemoryPass(
            name="lstm_gates",
            module=MODULE,
            kind="gated_activation",
            forward_bytes=(2 * GATES + 3 + GATES) * step,
            backward_bytes=(2 * GATES + GATES + 1) * step,
            repeats=repeats,
            saved=(SavedTensor(name="lstm_gates_output", size_bytes=kept, made_by=MODULE),),
        )

    def _dropout_pass(self, cut: Cut) -> tuple[MemoryPass, ...]:
        elements = cut.local_tokens * self.outputs
        mask = dropout_mask("lstm_dropout", elements=elements, dropout=self.dropout, module=MODULE)
        if not mask:
            return ()
        moved = 2 * cut.element_bytes * elements + mask[0].size_bytes
        return (
            MemoryPass(
                name="lstm_dropout",
                module=MODULE,
                kind="dropout",
                forward_bytes=moved,
                backward_bytes=moved,
                saved=mask,
            ),
        )

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1
