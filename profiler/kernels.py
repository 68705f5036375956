"""The kernels that can be measured: operands made, and a call that runs the kernel once on them."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from planner.units import Flops
from planner.workload.operators import Phase
from profiler.backend import Backend, require_memory
from profiler.shapes import KernelShape, Shape
from profiler.timing import Call

# Letters of shapes: m, n, k of C[m, n] = A[m, k] B[k, n]; R rows, C columns; E elements; P parameters;
# B batch, H heads, G key/value heads, S positions, D dimension of a head, V dimension of a value.

MAX_OPERAND_SETS = 16
"""Operands change from call to call, as a training step finds them in memory rather than in a cache."""


class Unsupported(ValueError):  # noqa: N818 - reads as what it is
    """A kernel that is not measured here: its operator, phase or precision."""


class InvalidShape(ValueError):  # noqa: N818 - reads as what it is
    """A shape that lacks a size, or whose sizes contradict each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensors:
    """Makes the operands of one kernel, all of one precision and on one device."""

    dtype: torch.dtype
    device: torch.device

    def random(self, *sizes: int) -> torch.Tensor:
        """Return normally distributed values: zeros would let an accelerator draw less power."""
        return torch.randn(*sizes, dtype=self.dtype, device=self.device)

    def differentiable(self, *sizes: int) -> torch.Tensor:
        """Return random values whose gradient is wanted, as of a layer's input or a weight."""
        return self.random(*sizes).requires_grad_()


@dataclass(frozen=True, kw_only=True, slots=True)
class Differentiable:
    """A function bound to its inputs, of which autograd has the backward."""

    run: Callable[[], torch.Tensor]
    inputs: tuple[torch.Tensor, ...]


Maker = Callable[[Shape, Tensors], Call]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """How an operator is measured: the sizes it needs, what its tensors hold, a maker for each phase."""

    sizes: tuple[str, ...]
    num_elements: Callable[[Shape], int]
    """Of operands, results and gradients together."""
    makers: Mapping[Phase, Maker]


def kernel_call(wanted: KernelShape, backend: Backend) -> Call:
    """Return a call that runs a kernel once, on operands that change from call to call.

    Raises `Unsupported`, `InvalidShape`, `MemoryError` where the operands cannot fit, and whatever
    torch raises on making them.
    """
    operator = OPERATORS.get(wanted.operator)
    maker = operator.makers.get(wanted.phase) if operator else None
    dtype = backend.use_precision(wanted.dtype)
    if operator is None or maker is None or dtype is None:
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

    A causal mask halves attention, whose backward has five products to the two of its forward.
    """
    shape = wanted.shape
    if wanted.operator == "matrix_product":
        return 2.0 * shape["m"] * shape["n"] * shape["k"]
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


def _forward(function: Callable[[Shape, Tensors], Differentiable]) -> Maker:
    """Time the function as training runs it: with what backward needs kept."""
    return lambda shape, tensors: function(shape, tensors).run


def _backward(function: Callable[[Shape, Tensors], Differentiable]) -> Maker:
    """Time the gradients of all inputs, from a forward run once beforehand."""

    def make(shape: Shape, tensors: Tensors) -> Call:
        bound = function(shape, tensors)
        output = bound.run()
        gradient = torch.randn_like(output)
        return lambda: torch.autograd.grad(output, bound.inputs, gradient, retain_graph=True)

    return make


def _product_forward(shape: Shape, tensors: Tensors) -> Call:
    """Call Y = X W^T, where a weight is stored with its outputs first."""
    A_mk, B_nk = tensors.random(shape["m"], shape["k"]), tensors.random(shape["n"], shape["k"])
    return lambda: torch.mm(A_mk, B_nk.t())


def _product_input_gradient(shape: Shape, tensors: Tensors) -> Call:
    """Call dX = dY W."""
    A_mk, B_kn = tensors.random(shape["m"], shape["k"]), tensors.random(shape["k"], shape["n"])
    return lambda: torch.mm(A_mk, B_kn)


def _product_weight_gradient(shape: Shape, tensors: Tensors) -> Call:
    """Call dW = dY^T X."""
    A_km, B_kn = tensors.random(shape["k"], shape["m"]), tensors.random(shape["k"], shape["n"])
    return lambda: torch.mm(A_km.t(), B_kn)


def _attention(shape: Shape, tensors: Tensors) -> Differentiable:
    batch, heads, kv_heads, sequence = (shape[name] for name in ("batch", "heads", "kv_heads", "sequence"))
    if heads % kv_heads:
        raise InvalidShape(f"heads ({heads}) must be a multiple of kv_heads ({kv_heads})")
    query_BHSD = tensors.differentiable(batch, heads, sequence, shape["head_dim"])
    key_BGSD = tensors.differentiable(batch, kv_heads, sequence, shape["head_dim"])
    value_BGSV = tensors.differentiable(batch, kv_heads, sequence, shape["value_dim"])
    is_causal, is_grouped = bool(shape["causal"]), heads != kv_heads

    def run() -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query_BHSD, key_BGSD, value_BGSV, is_causal=is_causal, enable_gqa=is_grouped
        )

    return Differentiable(run=run, inputs=(query_BHSD, key_BGSD, value_BGSV))


def _attention_elements(shape: Shape) -> int:
    """Count queries, keys, values, output and the gradient of each."""
    dims, value_dims = shape["head_dim"], shape["value_dim"]
    of_queries, of_keys = shape["heads"] * (dims + value_dims), shape["kv_heads"] * (dims + value_dims)
    return 2 * shape["batch"] * shape["sequence"] * (of_queries + of_keys)


def _layer_norm(shape: Shape, tensors: Tensors) -> Differentiable:
    x_RC = tensors.differentiable(shape["rows"], shape["cols"])
    weight_C, bias_C = tensors.differentiable(shape["cols"]), tensors.differentiable(shape["cols"])
    return Differentiable(
        run=lambda: functional.layer_norm(x_RC, (shape["cols"],), weight_C, bias_C),
        inputs=(x_RC, weight_C, bias_C),
    )


def _rms_norm(shape: Shape, tensors: Tensors) -> Differentiable:
    x_RC = tensors.differentiable(shape["rows"], shape["cols"])
    weight_C = tensors.differentiable(shape["cols"])
    return Differentiable(
        run=lambda: functional.rms_norm(x_RC, (shape["cols"],), weight_C), inputs=(x_RC, weight_C)
    )


def _softmax(shape: Shape, tensors: Tensors) -> Differentiable:
    x_RC = tensors.differentiable(shape["rows"], shape["cols"])
    return Differentiable(run=lambda: functional.softmax(x_RC, dim=-1), inputs=(x_RC,))


def _gelu(shape: Shape, tensors: Tensors) -> Differentiable:
    x_E = tensors.differentiable(shape["elems"])
    return Differentiable(run=lambda: functional.gelu(x_E), inputs=(x_E,))


def _gated_activation(shape: Shape, tensors: Tensors) -> Differentiable:
    """silu(gate) * up, of so many elements in the result."""
    gate_E, up_E = tensors.differentiable(shape["elems"]), tensors.differentiable(shape["elems"])
    return Differentiable(run=lambda: functional.silu(gate_E) * up_E, inputs=(gate_E, up_E))


def _add(shape: Shape, tensors: Tensors) -> Call:
    x_E, y_E = tensors.random(shape["elems"]), tensors.random(shape["elems"])
    return lambda: x_E + y_E


def _adam(shape: Shape, tensors: Tensors) -> Call:
    """One fused AdamW step, as training frameworks take it; both moments in the parameters' precision."""
    weight_P = tensors.differentiable(shape["params"])
    weight_P.grad = tensors.random(shape["params"])
    return torch.optim.AdamW([weight_P], fused=True).step


def _rows_by_columns(tensors_alike: int) -> Callable[[Shape], int]:
    return lambda shape: tensors_alike * shape["rows"] * shape["cols"]


def _elements(tensors_alike: int) -> Callable[[Shape], int]:
    return lambda shape: tensors_alike * shape["elems"]


def _differentiable(
    sizes: tuple[str, ...],
    num_elements: Callable[[Shape], int],
    function: Callable[[Shape, Tensors], Differentiable],
) -> Operator:
    makers = {Phase.FORWARD: _forward(function), Phase.BACKWARD: _backward(function)}
    return Operator(sizes=sizes, num_elements=num_elements, makers=makers)


OPERATORS: Mapping[str, Operator] = {
    "matrix_product": Operator(
        sizes=("m", "n", "k"),
        num_elements=lambda shape: (
            shape["m"] * shape["k"] + shape["k"] * shape["n"] + shape["m"] * shape["n"]
        ),
        makers={
            Phase.FORWARD: _product_forward,
            Phase.INPUT_GRADIENT: _product_input_gradient,
            Phase.WEIGHT_GRADIENT: _product_weight_gradient,
        },
    ),
    "attention": _differentiable(
        ("batch", "sequence", "heads", "kv_heads", "head_dim", "value_dim", "causal"),
        _attention_elements,
        _attention,
    ),
    "layer_norm": _differentiable(("rows", "cols"), _rows_by_columns(4), _layer_norm),
    "rms_norm": _differentiable(("rows", "cols"), _rows_by_columns(4), _rms_norm),
    "softmax": _differentiable(("rows", "cols"), _rows_by_columns(4), _softmax),
    "gelu": _differentiable(("elems",), _elements(4), _gelu),
    "gated_activation": _differentiable(("elems",), _elements(6), _gated_activation),
    "add": Operator(sizes=("elems",), num_elements=_elements(3), makers={Phase.FORWARD: _add}),
    "adam": Operator(
        sizes=("params",),
        num_elements=lambda shape: 4 * shape["params"],
        makers={Phase.OPTIMIZER: _adam},
    ),
}
"""By name. Alike are inputs, outputs and their gradients; for Adam weight, gradient and two moments."""
