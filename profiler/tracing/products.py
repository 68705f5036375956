"""Which operators are matrix products or attention, and of which sizes: those of a whole micro-batch.

A convolution is the product that it is computed as: a row for every place of the output, an inner size of
the weights that a place of one group meets (implicit GEMM, Chetlur et al., 2014).
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

from planner.workload.traced import SampleDim, TracedAttention, TracedProduct
from profiler.tracing.recording import Call, Gradient
from profiler.tracing.storages import View

CONVOLUTION: Final = "convolution"


def product_of(call: Call) -> TracedProduct | TracedAttention | None:
    """Return the product or the attention that a call runs, None for a call that is neither.

    A depth-wise convolution is none: it moves more than it multiplies.
    """
    find = PRODUCTS.get(call.operator)
    if find is None or call.writes[0].elements == 0 or call.reads[0].elements == 0:
        return None
    product: TracedProduct | TracedAttention | None = find(call)
    return product


def is_product(gradient: Gradient) -> bool:
    """Tell whether an operator of backward is a product, which its forward implies."""
    return gradient.operator in PRODUCTS or gradient.operator in GRADIENTS


def depthwise_flops(call: Call) -> int:
    """Return the FLOP of a depth-wise convolution: two per output and weight of its one channel; else 0."""
    if call.operator != CONVOLUTION or not _is_depthwise(call):
        return 0
    _, weight, *_, is_transposed, _, _ = call.arguments[:9]
    places = call.reads[0] if is_transposed else call.writes[0]
    channels = weight.shape[1] if is_transposed else 1
    return int(2 * prod(places.shape) * prod(weight.shape[2:]) * channels)


def _matrix_product(call: Call, left: View, right: View) -> TracedProduct:
    """Return left [count, rows, inner] x right [count, inner, columns], weights turned to the right."""
    count = left.shape[0] if len(left.shape) == BATCHED_DIMS else 1
    (rows, inner), columns = left.shape[-2:], right.shape[-1]
    if left.storage.is_weight and not right.storage.is_weight:
        left, right, rows, columns = right, left, columns, rows
    if right.storage.is_weight and len(right.shape) == BATCHED_DIMS and right.strides[0] == 0:
        rows, count = rows * count, 1
    return TracedProduct(
        name=call.operator,
        rows=rows,
        columns=columns,
        inner=inner,
        count=count,
        steps=call.repeat,
        grows=SampleDim.NONE,
        has_weights=right.storage.is_weight,
        has_input_gradient=_num_gradient_products(call) > 1,
    )


def _convolution(call: Call) -> TracedProduct | None:
    if _is_depthwise(call):
        return None
    data, weight, _bias, _stride, _padding, _dilation, is_transposed, _output_padding, groups = (
        call.arguments[:9]
    )
    kernel = prod(weight.shape[2:])
    places = data if is_transposed else call.writes[0]
    rows = places.shape[0] * prod(places.shape[2:])
    if is_transposed:
        inner, columns = weight.shape[0] // groups, weight.shape[1] * kernel
    else:
        inner, columns = weight.shape[1] * kernel, weight.shape[0] // groups
    return TracedProduct(
        name=call.operator,
        rows=rows,
        columns=columns,
        inner=inner,
        count=groups,
        steps=call.repeat,
        grows=SampleDim.NONE,
        has_weights=weight.storage.is_weight,
        has_input_gradient=any(_makes_input_gradient(gradient) for gradient in call.gradients),
        input_elements=data.elements if kernel > 1 and not is_transposed else None,
    )


def _attention(call: Call) -> TracedAttention:
    query, key, value = call.arguments[:3]
    causal_place = 4 if "flash" in call.operator else 6
    return TracedAttention(
        name="attention",
        batch=query.shape[0],
        query_length=query.shape[2],
        key_length=key.shape[2],
        heads=query.shape[1],
        kv_heads=key.shape[1],
        head_dim=query.shape[3],
        value_dim=value.shape[3],
        causal=bool(call.arguments[causal_place]),
        repeat=call.repeat,
    )


def _is_depthwise(call: Call) -> bool:
    """Tell whether every channel of the input meets a filter of its own."""
    data, weight, *_ = call.arguments
    groups = call.arguments[8]
    return bool(groups > 1 and groups == data.shape[1] and prod(weight.shape[2:]) >= 1)


def _makes_input_gradient(gradient: Gradient) -> bool:
    """Tell whether a backward convolution returns the gradient of its input: the first of its mask."""
    return gradient.operator == "convolution_backward" and bool(gradient.arguments[-1][0])


def _num_gradient_products(call: Call) -> int:
    return sum(gradient.operator in PRODUCTS for gradient in call.gradients)


BATCHED_DIMS: Final = 3

PRODUCTS: Final[Mapping[str, Callable[[Call], Any]]] = {
    "mm": lambda call: _matrix_product(call, *call.arguments[:2]),
    "bmm": lambda call: _matrix_product(call, *call.arguments[:2]),
    "addmm": lambda call: _matrix_product(call, *call.arguments[1:3]),
    "baddbmm": lambda call: _matrix_product(call, *call.arguments[1:3]),
    CONVOLUTION: _convolution,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
}
"""The operators that multiply matrices."""

GRADIENTS: Final = frozenset(
    {
        "convolution_backward",
        "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_efficient_attention_backward",
    }
)
"""The gradients of those that are no such operators themselves."""
