"""A layer's backward pass in two: gradients of its inputs, which others wait for, and those of its weights.

The second pass is the products that make gradients of trained weights. It needs their inputs and the
gradients of their outputs, which stay until it runs: 32 s b h bytes of a GPT layer (Qi et al., arXiv
2401.10241, table 2). Gradients of norms' weights, of biases and of embeddings come with those of the inputs,
as they cost next to nothing. torch's autograd frees less: the graph that leads to the products' inputs stays
whole (measured on CPU with torch 2.13: all that a decoder layer's forward pass saved, and the gradients of
every product's and every norm's output).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from planner.cost.layer import LayerClock, LayerCost, LayerPasses
from planner.cost.tally import NOTHING, Tally, total
from planner.profile import Estimate
from planner.units import Bytes, Seconds
from planner.workload.layers import Cut
from planner.workload.operators import MatrixProduct, MemoryPass, Module, Operator
from planner.workload.weights import weight_products


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitBackward:
    """What changes when one micro-batch's backward pass through some layers is split.

    Gradients of weights take ``weight_seconds``. Both passes take ``more`` than one does, whose communication
    partly hid behind those. ``held_bytes`` stay until they are made.
    """

    weight_seconds: Seconds = 0.0
    more: Tally = NOTHING
    held_bytes: Bytes = 0.0

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Return the passes of several layers one after the other."""
        return cls(
            weight_seconds=sum(part.weight_seconds for part in parts),
            more=total(part.more for part in parts),
            held_bytes=sum(part.held_bytes for part in parts),
        )


WHOLE: Final = SplitBackward()
"""A backward pass that no schedule splits."""


def split_backward(
    clock: LayerClock[Estimate, Tally], passes: LayerPasses[Tally], cost: LayerCost[Tally]
) -> SplitBackward:
    """Return how a layer's backward pass changes where gradients of its weights are a pass of their own."""
    inputs = clock.gradients_of_inputs(passes.operators)
    weights = clock.gradients_of_weights(passes.operators)
    if clock.framework.keeps_graph_for_weights:
        held = graph_bytes(passes.operators, passes.cut, saved_bytes=cost.saved_bytes)
    else:
        held = held_bytes(passes.operators, passes.cut)
    return SplitBackward(
        weight_seconds=weights.seconds,
        more=total((clock.split_again(inputs, passes.operators), weights, passes.backward.times(-1))),
        held_bytes=held,
    )


def held_bytes(operators: Sequence[Operator], cut: Cut) -> Bytes:
    """Return what the gradients of weights need: inputs of the products, gradients of their outputs."""
    products = _trained(operators)
    return sum(op.saved_bytes for op in products) + _output_gradients(products, cut)


def graph_bytes(operators: Sequence[Operator], cut: Cut, *, saved_bytes: Bytes) -> Bytes:
    """Return what stays where autograd keeps its graph: all that was saved, and gradients of outputs."""
    norms = [op for op in operators if isinstance(op, MemoryPass) and op.module is Module.NORM]
    # A norm reads and writes equally much in forward.
    normed = sum(op.forward_bytes / 2 for op in norms)
    return saved_bytes + _output_gradients(_trained(operators), cut) + normed


def _trained(operators: Sequence[Operator]) -> list[MatrixProduct]:
    """Return the products whose weights get a gradient."""
    return [op for op in weight_products(operators) if op.trains and not op.forward_only]


def _output_gradients(products: Sequence[MatrixProduct], cut: Cut) -> Bytes:
    return cut.element_bytes * sum(op.count * op.repeats * op.rows * op.columns for op in products)
