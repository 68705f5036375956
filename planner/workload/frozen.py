"""A layer that is not trained: no gradients of its weights, and none at all before what is trained.

Source of what is saved: an operator keeps what its own gradients need, as PyTorch's does. The product of
a frozen weight needs no input for backward, a norm, an activation and an attention core need theirs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.job import BaseFormat
from planner.units import Bytes, Flops
from planner.workload.layers import Cut, Layer, Split
from planner.workload.operators import (
    AttentionCore,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Module,
    Operator,
    Phase,
    Saved,
)
from planner.workload.streams import Stream
from planner.workload.tensor_parallel import gathers_a_saved_input
from planner.workload.weights import (
    EXPERT_PRODUCTS,
    TABLE_MODULES,
    Holding,
    Holdings,
    weight_flops_per_sample,
    weight_products,
    weights_of,
)

NF4_BLOCK: Final = 64
NF4_SCALES: Final = 256
BASE_BYTES: Final = {
    BaseFormat.NF4: (4 + 8 / NF4_BLOCK + 32 / (NF4_BLOCK * NF4_SCALES)) / 8,
    BaseFormat.INT8: 1.0,
    BaseFormat.BF16: 2.0,
}
"""Bytes per parameter at rest.

NF4 with double quantization (Dettmers et al., "QLoRA", 2023, section 3): four bits, an 8-bit scale for 64
weights and an FP32 scale for 256 of those, 0.127 bits. INT8 has a scale per row, which is left out.
"""
DEQUANTIZE: Final = "dequantize"
"""The kind of the pass that reads quantized weights and writes them in the format of compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerAround:
    """What a layer answers as the layer inside it does."""

    layer: Layer

    @property
    def kind(self) -> str:
        """That of the layer inside."""
        return self.layer.kind

    @property
    def stream(self) -> Stream | None:
        """The sequences that the layer inside works on."""
        return getattr(self.layer, "stream", None)

    @property
    def parameters(self) -> int:
        """Parameters of the whole layer."""
        return self.layer.parameters

    def local_parameters(self, cut: Cut) -> int:
        """Return what one device holds."""
        return self.layer.local_parameters(cut)

    def local_expert_parameters(self, cut: Cut) -> int:
        """Return those of the local parameters that are split over expert parallel."""
        return self.layer.local_expert_parameters(cut)

    def tied_local_parameters(self, cut: Cut) -> int:
        """Return what a device holds as well when the tied layer sits on another stage."""
        return self.layer.tied_local_parameters(cut)

    @property
    def idle_parameters(self) -> int:
        """Parameters that one token leaves unused."""
        return self.layer.idle_parameters

    @property
    def buffers(self) -> int:
        """Numbers that the layer keeps and nothing trains."""
        return self.layer.buffers

    @property
    def splits(self) -> tuple[Split, ...]:
        """What the parallel degrees have to divide."""
        return self.layer.splits

    def output_bytes(self, cut: Cut) -> Bytes:
        """Return the bytes that one device hands to the next layer."""
        return self.layer.output_bytes(cut)

    def forward_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return useful forward FLOP of one sample."""
        return self.layer.forward_flops_per_sample(sequence_length)


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenLayer(LayerAround):
    """A layer as it was before training; ``has_backward`` where something before it is trained."""

    has_backward: bool = True
    base_format: BaseFormat | None = None

    def operators(self, cut: Cut) -> tuple[Operator, ...]:
        """Return the operators of one micro-batch on one device, in forward order."""
        operators = tuple(frozen_operators(self.layer.operators(frozen_cut(cut))))
        if not self.has_backward:
            operators = tuple(forward_only(operators))
        return tuple(at_rest(operators, self.base_format, cut))

    def holdings(self, cut: Cut) -> Holdings:
        """Return what one device holds: nothing that is trained."""
        return frozen_holdings(self.layer, self.base_format, cut)

    def step_flops_per_sample(self, sequence_length: int) -> Flops:
        """Return forward once, and backward twice but for weight gradients where there is a backward."""
        forward = self.layer.forward_flops_per_sample(sequence_length)
        if not self.has_backward:
            return forward
        return 3.0 * forward - weight_flops_per_sample(self.layer, sequence_length)


def frozen_cut(cut: Cut) -> Cut:
    """Return the cut of a layer whose norms are not trained: they keep nothing for a weight's gradient."""
    return replace(cut, keeping=replace(cut.keeping, trains_norms=False))


def forward_only(operators: Sequence[Operator]) -> Iterator[Operator]:
    """Yield the operators of a layer that nothing has to go back through: they save nothing."""
    for op in operators:
        if not isinstance(op, CollectivePass):
            yield replace(op, saved=(), forward_only=True)
        elif op.phase is Phase.FORWARD:
            yield replace(op, forward_only=True)


def frozen_operators(operators: Sequence[Operator]) -> Iterator[Operator]:
    """Yield the operators of a layer whose weights get no gradients.

    Their products save no input, unless the fused attention core needs it (its own output), and gather
    none for backward.
    """
    frozen = {op.name for op in weight_products(operators)}
    has_core = any(isinstance(op, AttentionCore) for op in operators)
    for op in operators:
        if isinstance(op, MatrixProduct) and op.has_weights:
            yield replace(op, trains=False, saved=_needed_elsewhere(op, has_core=has_core))
        elif not (gathers_a_saved_input(op) and op.partner in frozen):
            yield op


def at_rest(operators: Sequence[Operator], base_format: BaseFormat | None, cut: Cut) -> Iterator[Operator]:
    """Yield the operators of frozen weights that rest in a format: each is brought to that of compute first.

    Tables of embedding and head rest as they compute, and so do adapters.
    """
    for op in operators:
        if not (isinstance(op, MatrixProduct) and rests_quantized(op, base_format, cut)):
            yield op
            continue
        moved = weights_of(op) * (base_bytes(base_format, cut) + cut.element_bytes)
        yield MemoryPass(
            name=f"{op.name}_{DEQUANTIZE}",
            module=op.module,
            kind=DEQUANTIZE,
            forward_bytes=moved,
            backward_bytes=0.0 if op.forward_only else moved,
            forward_only=op.forward_only,
        )
        yield replace(op, dequantized=True)


def frozen_holdings(layer: Layer, base_format: BaseFormat | None, cut: Cut) -> Holdings:
    """Return what one device holds of a layer that is not trained."""
    products = [
        op
        for op in frozen_operators(layer.operators(cut))
        if isinstance(op, MatrixProduct) and rests_quantized(op, base_format, cut)
    ]
    experts = sum(weights_of(op) for op in products if op.name in EXPERT_PRODUCTS)
    dense = sum(map(weights_of, products)) - experts
    all_experts = layer.local_expert_parameters(cut)
    common = layer.local_parameters(cut) - all_experts
    return Holdings(
        dense=Holding(frozen=common - dense, quantized=dense),
        experts=Holding(frozen=all_experts - experts, quantized=experts),
    )


def rests_quantized(op: MatrixProduct, base_format: BaseFormat | None, cut: Cut) -> bool:
    """Whether the weights of a product rest in another format than they compute in."""
    is_base = op.has_weights and not op.trains and op.module not in TABLE_MODULES
    return is_base and base_bytes(base_format, cut) != cut.element_bytes


def base_bytes(base_format: BaseFormat | None, cut: Cut) -> float:
    """Return the bytes per parameter of frozen weights at rest."""
    return cut.element_bytes if base_format is None else BASE_BYTES[base_format]


def _needed_elsewhere(op: MatrixProduct, *, has_core: bool) -> Saved:
    """Return what stays of a product's input: what the core needs, and what a rerun starts from.

    The core's output comes first; a copy in the product's own format goes.
    """
    first = op.saved[:1]
    if has_core and first and first[0].made_by is Module.CORE_ATTENTION:
        return first
    return tuple(replace(tensor, only_to_rerun=True) for tensor in first)
