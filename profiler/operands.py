"""What kernels are made of: tensors, what autograd needs of them, what an operator says of itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from planner.workload.operators import Phase
from profiler.shapes import Shape
from profiler.timing import Call

WIDE = frozenset({"fp32", "tf32", "fp16", "bf16"})
"""Precisions in which every operator runs."""
NARROW = frozenset({"fp8"})
"""Precisions in which products alone run, their operands scaled as wholes."""


class Unsupported(ValueError):  # noqa: N818 - reads as what it is
    """What is not measured here: its operator, phase, precision or way of running."""


class InvalidShape(ValueError):  # noqa: N818 - reads as what it is
    """A shape that lacks a size, or whose sizes contradict each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensors:
    """Makes the operands of one kernel, all of one precision and on one device."""

    dtype: torch.dtype
    device: torch.device

    def random(self, *sizes: int) -> torch.Tensor:
        """Return normally distributed values: zeros would let an accelerator draw less power."""
        if self.dtype.itemsize == 1:
            return torch.randn(*sizes, dtype=torch.bfloat16, device=self.device).to(self.dtype)
        return torch.randn(*sizes, dtype=self.dtype, device=self.device)

    def differentiable(self, *sizes: int) -> torch.Tensor:
        """Return random values whose gradient is wanted, as of a layer's input or a weight."""
        return self.random(*sizes).requires_grad_()

    def indices(self, *sizes: int, below: int) -> torch.Tensor:
        """Return random whole numbers from zero, as of tokens, targets or places."""
        return torch.randint(below, sizes, device=self.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class Differentiable:
    """A function bound to its inputs, of which autograd has the backward."""

    run: Callable[[], torch.Tensor]
    inputs: tuple[torch.Tensor, ...]


Maker = Callable[[Shape, Tensors], Call]
Binder = Callable[[Shape, Tensors], Differentiable]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """How an operator is measured: the sizes it needs, what its tensors hold, a maker for each phase."""

    sizes: tuple[str, ...]
    num_elements: Callable[[Shape], int]
    """Of operands, results and gradients together."""
    makers: Mapping[Phase, Maker]
    precisions: frozenset[str] = WIDE


def forward_of(bind: Binder) -> Maker:
    """Time the function as training runs it: with what backward needs kept."""
    return lambda shape, tensors: bind(shape, tensors).run


def backward_of(bind: Binder) -> Maker:
    """Time the gradients of all inputs, from a forward run once beforehand."""

    def make(shape: Shape, tensors: Tensors) -> Call:
        bound = bind(shape, tensors)
        output = bound.run()
        gradient = torch.randn_like(output)
        return lambda: torch.autograd.grad(output, bound.inputs, gradient, retain_graph=True)

    return make


def differentiable(sizes: tuple[str, ...], num_elements: Callable[[Shape], int], bind: Binder) -> Operator:
    """Return an operator whose backward is autograd's."""
    makers = {Phase.FORWARD: forward_of(bind), Phase.BACKWARD: backward_of(bind)}
    return Operator(sizes=sizes, num_elements=num_elements, makers=makers)
