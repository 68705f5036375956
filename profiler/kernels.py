"""The kernels that can be measured: operands made, and a call that runs the kernel once on them."""

import itertools
from collections.abc import Mapping

import torch

from planner.units import Flops
from planner.workload.operators import Phase
from profiler.backend import Backend, require_memory
from profiler.operands import InvalidShape, Operator, Tensors, Unsupported
from profiler.passes import PASSES
from profiler.products import PRODUCTS
from profiler.shapes import KernelShape, Shape
from profiler.timing import Call

MAX_OPERAND_SETS = 16
"""Operands change from call to call, as a training step finds them in memory rather than in a cache."""


def _launch(_: Shape, tensors: Tensors) -> Call:
    """Call the smallest kernel there is: again and again, it takes what launching one takes."""
    x = tensors.random(1)
    return lambda: torch.neg(x)


OPERATORS: Mapping[str, Operator] = {
    **PRODUCTS,
    **PASSES,
    "launch": Operator(sizes=(), num_elements=lambda _: 2, makers={Phase.FORWARD: _launch}),
}


def kernel_call(wanted: KernelShape, backend: Backend) -> Call:
    """Return a call that runs a kernel once, on operands that change from call to call.

    Raises `Unsupported`, `InvalidShape`, `MemoryError` where the operands cannot fit, and whatever
    torch raises on making them.
    """
    operator = OPERATORS.get(wanted.operator)
    maker = operator.makers.get(wanted.phase) if operator else None
    dtype = backend.use_precision(wanted.dtype)
    if operator is None or maker is None or dtype is None or wanted.dtype not in operator.precisions:
        raise Unsupported(
            f"{wanted.operator} {wanted.phase} in {wanted.dtype} is not measured on {backend.kind}"
        )
    _require_sizes(wanted, operator)
    set_bytes = operator.num_elements(wanted.shape) * dtype.itemsize
    require_memory(set_bytes, backend)
    num_sets = max(1, min(MAX_OPERAND_SETS, backend.cache_bytes // set_bytes))
    tensors = Tensors(dtype=dtype, device=backend.device)
    turns = itertools.cycle([maker(wanted.shape, tensors) for _ in range(num_sets)])

    def call() -> object:
        return next(turns)()

    return call


def kernel_flops(wanted: KernelShape) -> Flops | None:
    """Return the FLOP of a kernel that they bind, two per multiply-add; None where memory binds it.

    A causal mask halves attention, whose backward has five products to the two of its forward; a
    batched product's backward has two.
    """
    shape = wanted.shape
    if wanted.operator.endswith("matrix_product"):
        count = shape.get("groups", 1) * shape.get("batch", 1)
        products = 2.0 if wanted.phase == Phase.BACKWARD else 1.0
        return 2.0 * products * count * shape["m"] * shape["n"] * shape["k"]
    if wanted.operator == "attention":
        pairs = shape["batch"] * shape["heads"] * shape["sequence"] ** 2 * (0.5 if shape["causal"] else 1.0)
        passes = 1.0 if wanted.phase == Phase.FORWARD else 5 / 2
        return 2.0 * passes * pairs * (shape["head_dim"] + shape["value_dim"])
    return None


def _require_sizes(wanted: KernelShape, operator: Operator) -> None:
    missing = [name for name in operator.sizes if name not in wanted.shape]
    if missing:
        raise InvalidShape(f"{wanted.operator} needs {', '.join(operator.sizes)}; lacks {', '.join(missing)}")
    zero = [name for name in operator.sizes if wanted.shape[name] < 1 and name != "causal"]
    if zero:
        raise InvalidShape(f"{', '.join(zero)} must be 1 or more")
