"""Kernels that memory binds: norms, activations, rotary, softmax, loss, embedding, copies, optimizers."""

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from planner.workload.operators import Phase
from profiler.operands import Differentiable, Operator, Tensors, differentiable
from profiler.shapes import Shape
from profiler.timing import Call

# Letters of shapes: R rows, C columns; E elements; V entries of a vocabulary; P parameters.

DROPOUT = 0.1
"""The share that dropout drops: its time does not depend on it."""


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


def _cross_entropy(shape: Shape, tensors: Tensors) -> Differentiable:
    """Mean loss over rows of logits, cast to fp32 first as training does."""
    logits_RV = tensors.differentiable(shape["rows"], shape["cols"])
    targets_R = tensors.indices(shape["rows"], below=shape["cols"])
    return Differentiable(
        run=lambda: functional.cross_entropy(logits_RV.float(), targets_R), inputs=(logits_RV,)
    )


def _embedding(shape: Shape, tensors: Tensors) -> Differentiable:
    """Rows of a table; the gradient is a whole table, as data-parallel training wants it."""
    table_VC = tensors.differentiable(shape["vocabulary"], shape["cols"])
    tokens_R = tensors.indices(shape["rows"], below=shape["vocabulary"])
    return Differentiable(run=lambda: functional.embedding(tokens_R, table_VC), inputs=(table_VC,))


def _rotary(shape: Shape, tensors: Tensors) -> Differentiable:
    """X cos + rotated(x) sin, over rows of one head each, ``cols`` being the dimension of a head."""
    x_RC = tensors.differentiable(shape["rows"], shape["cols"])
    cosine_RC, sine_RC = (tensors.random(shape["rows"], shape["cols"]) for _ in range(2))

    def run() -> torch.Tensor:
        first, second = x_RC.chunk(2, dim=-1)
        return x_RC * cosine_RC + torch.cat((-second, first), dim=-1) * sine_RC

    return Differentiable(run=run, inputs=(x_RC,))


def _gelu(shape: Shape, tensors: Tensors) -> Differentiable:
    x_E = tensors.differentiable(shape["elems"])
    return Differentiable(run=lambda: functional.gelu(x_E), inputs=(x_E,))


def _gated_activation(shape: Shape, tensors: Tensors) -> Differentiable:
    """silu(gate) * up, of so many elements in the result."""
    gate_E, up_E = tensors.differentiable(shape["elems"]), tensors.differentiable(shape["elems"])
    return Differentiable(run=lambda: functional.silu(gate_E) * up_E, inputs=(gate_E, up_E))


def _dropout(shape: Shape, tensors: Tensors) -> Differentiable:
    x_E = tensors.differentiable(shape["elems"])
    return Differentiable(run=lambda: functional.dropout(x_E, DROPOUT, training=True), inputs=(x_E,))


def _add(shape: Shape, tensors: Tensors) -> Call:
    x_E, y_E = tensors.random(shape["elems"]), tensors.random(shape["elems"])
    return lambda: x_E + y_E


def _copy(shape: Shape, tensors: Tensors) -> Call:
    x_E, y_E = tensors.random(shape["elems"]), tensors.random(shape["elems"])
    return lambda: y_E.copy_(x_E)


def _permute(shape: Shape, tensors: Tensors) -> Call:
    """Call a copy of rows in another order, as tokens are sorted by expert."""
    x_RC = tensors.random(shape["rows"], shape["cols"])
    order_R = torch.randperm(shape["rows"], device=tensors.device)
    return lambda: x_RC.index_select(0, order_R)


def _adam(shape: Shape, tensors: Tensors) -> Call:
    """Call one fused AdamW step, as training frameworks take it; both moments as wide as the parameters."""
    return torch.optim.AdamW([_parameter(shape, tensors)], fused=True).step


def _sgd(shape: Shape, tensors: Tensors) -> Call:
    """Call one fused step of SGD with momentum."""
    return torch.optim.SGD([_parameter(shape, tensors)], lr=1e-3, momentum=0.9, fused=True).step


def _parameter(shape: Shape, tensors: Tensors) -> torch.Tensor:
    weight_P = tensors.differentiable(shape["params"])
    weight_P.grad = tensors.random(shape["params"])
    return weight_P


def _plane(tensors_alike: int) -> Callable[[Shape], int]:
    return lambda shape: tensors_alike * shape["rows"] * shape["cols"]


def _line(tensors_alike: int) -> Callable[[Shape], int]:
    return lambda shape: tensors_alike * shape["elems"]


def _embedding_elements(shape: Shape) -> int:
    return 2 * (shape["rows"] + shape["vocabulary"]) * shape["cols"]


ROWS_BY_COLUMNS = ("rows", "cols")

PASSES: Mapping[str, Operator] = {
    "layer_norm": differentiable(ROWS_BY_COLUMNS, _plane(4), _layer_norm),
    "rms_norm": differentiable(ROWS_BY_COLUMNS, _plane(4), _rms_norm),
    "softmax": differentiable(ROWS_BY_COLUMNS, _plane(4), _softmax),
    # Logits, softmax and gradients, half of them in fp32 whatever the logits are.
    "cross_entropy": differentiable(ROWS_BY_COLUMNS, _plane(8), _cross_entropy),
    "embedding": differentiable((*ROWS_BY_COLUMNS, "vocabulary"), _embedding_elements, _embedding),
    "rotary": differentiable(ROWS_BY_COLUMNS, _plane(8), _rotary),
    "permute": Operator(sizes=ROWS_BY_COLUMNS, num_elements=_plane(2), makers={Phase.FORWARD: _permute}),
    "gelu": differentiable(("elems",), _line(4), _gelu),
    "gated_activation": differentiable(("elems",), _line(6), _gated_activation),
    "dropout": differentiable(("elems",), _line(5), _dropout),
    "add": Operator(sizes=("elems",), num_elements=_line(3), makers={Phase.FORWARD: _add}),
    "copy": Operator(sizes=("elems",), num_elements=_line(2), makers={Phase.FORWARD: _copy}),
    "adam": Operator(
        sizes=("params",),
        num_elements=lambda shape: 4 * shape["params"],
        makers={Phase.OPTIMIZER: _adam},
    ),
    "sgd": Operator(
        sizes=("params",),
        num_elements=lambda shape: 3 * shape["params"],
        makers={Phase.OPTIMIZER: _sgd},
    ),
}
"""By name. Alike are inputs, outputs and their gradients; of an optimizer weight, gradient and moments."""
