"""Matrix products: single, batched and grouped ones, and attention, which is two of them in one kernel."""

from collections.abc import Mapping

import torch
from torch.nn import functional

from planner.workload.operators import Phase
from profiler.operands import (
    NARROW,
    WIDE,
    Differentiable,
    InvalidShape,
    Operator,
    Tensors,
    differentiable,
)
from profiler.shapes import Shape
from profiler.timing import Call

# Letters of shapes: m, n, k of C[m, n] = A[m, k] B[k, n]; P products in a batch or group; B batch, H heads,
# G key/value heads, S positions, D dimension of a head, V dimension of a value.


def _product_forward(shape: Shape, tensors: Tensors) -> Call:
    """Call Y = X W^T, where a weight is stored with its outputs first."""
    A_mk, B_nk = tensors.random(shape["m"], shape["k"]), tensors.random(shape["n"], shape["k"])
    if tensors.dtype.itemsize == 1:
        return _scaled(A_mk, B_nk)
    return lambda: torch.mm(A_mk, B_nk.t())


def _product_input_gradient(shape: Shape, tensors: Tensors) -> Call:
    """Call dX = dY W."""
    if tensors.dtype.itemsize == 1:
        return _product_forward(shape, tensors)
    A_mk, B_kn = tensors.random(shape["m"], shape["k"]), tensors.random(shape["k"], shape["n"])
    return lambda: torch.mm(A_mk, B_kn)


def _product_weight_gradient(shape: Shape, tensors: Tensors) -> Call:
    """Call dW = dY^T X."""
    if tensors.dtype.itemsize == 1:
        return _product_forward(shape, tensors)
    A_km, B_kn = tensors.random(shape["k"], shape["m"]), tensors.random(shape["k"], shape["n"])
    return lambda: torch.mm(A_km.t(), B_kn)


def _scaled(A_mk: torch.Tensor, B_nk: torch.Tensor) -> Call:
    """Call a product of eight-bit operands, one scale for each, into bf16.

    Tensor cores read eight-bit operands along k alone: training keeps the transposed copies that its
    gradients need, so that all three phases are the same call.
    """
    scale = torch.ones((), device=A_mk.device)
    return lambda: torch._scaled_mm(A_mk, B_nk.t(), scale, scale, out_dtype=torch.bfloat16)  # noqa: SLF001 - torch's only one


def _grouped_forward(shape: Shape, tensors: Tensors) -> Call:
    """Call Y = X W^T of every expert at once; equal groups are a batch with one stride."""
    groups, m, n, k = (shape[name] for name in ("groups", "m", "n", "k"))
    A_Pmk, B_Pnk = tensors.random(groups, m, k), tensors.random(groups, n, k)
    return lambda: torch.bmm(A_Pmk, B_Pnk.transpose(1, 2))


def _grouped_input_gradient(shape: Shape, tensors: Tensors) -> Call:
    """Call dX = dY W of every expert, m and k being those of the forward product."""
    groups, m, n, k = (shape[name] for name in ("groups", "m", "n", "k"))
    A_Pmn, B_Pnk = tensors.random(groups, m, n), tensors.random(groups, n, k)
    return lambda: torch.bmm(A_Pmn, B_Pnk)


def _grouped_weight_gradient(shape: Shape, tensors: Tensors) -> Call:
    """Call dW = dY^T X of every expert, n and k being those of the forward product."""
    groups, m, n, k = (shape[name] for name in ("groups", "m", "n", "k"))
    A_Pmn, B_Pmk = tensors.random(groups, m, n), tensors.random(groups, m, k)
    return lambda: torch.bmm(A_Pmn.transpose(1, 2), B_Pmk)


def _batched(shape: Shape, tensors: Tensors) -> Differentiable:
    """C = A B for each of a batch, both operands activations, as in attention that is not fused."""
    A_Pmk = tensors.differentiable(shape["batch"], shape["m"], shape["k"])
    B_Pkn = tensors.differentiable(shape["batch"], shape["k"], shape["n"])
    return Differentiable(run=lambda: torch.bmm(A_Pmk, B_Pkn), inputs=(A_Pmk, B_Pkn))


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


def _product_elements(shape: Shape) -> int:
    """Count both operands and the result of one product."""
    return shape["m"] * shape["k"] + shape["k"] * shape["n"] + shape["m"] * shape["n"]


PRODUCTS: Mapping[str, Operator] = {
    "matrix_product": Operator(
        sizes=("m", "n", "k"),
        num_elements=_product_elements,
        makers={
            Phase.FORWARD: _product_forward,
            Phase.INPUT_GRADIENT: _product_input_gradient,
            Phase.WEIGHT_GRADIENT: _product_weight_gradient,
        },
        precisions=WIDE | NARROW,
    ),
    "grouped_matrix_product": Operator(
        sizes=("groups", "m", "n", "k"),
        num_elements=lambda shape: shape["groups"] * _product_elements(shape),
        makers={
            Phase.FORWARD: _grouped_forward,
            Phase.INPUT_GRADIENT: _grouped_input_gradient,
            Phase.WEIGHT_GRADIENT: _grouped_weight_gradient,
        },
    ),
    "batched_matrix_product": differentiable(
        ("batch", "m", "n", "k"),
        lambda shape: 2 * shape["batch"] * _product_elements(shape),
        _batched,
    ),
    "attention": differentiable(
        ("batch", "sequence", "heads", "kv_heads", "head_dim", "value_dim", "causal"),
        _attention_elements,
        _attention,
    ),
}
"""By name. The gradients of a single product have sizes of their own, those of a grouped one its own."""
