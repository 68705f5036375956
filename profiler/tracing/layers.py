"""One run of a module as layers: what its operators are to the planner, for the batch of that run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

import torch

from planner.workload.traced import (
    EMPTY,
    TracedLayer,
    TracedOperator,
    TracedPass,
    Volume,
)
from profiler.tracing.blocks import Block, blocks_of
from profiler.tracing.errors import UntraceableModule
from profiler.tracing.flow import LayerFlow, flows_of
from profiler.tracing.products import depthwise_flops, is_product, product_of
from profiler.tracing.recording import Call, Recording
from profiler.tracing.storages import total

RESEMBLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "addcmul", "where", "maximum", "minimum", "lerp"), "add"),
    **dict.fromkeys(("cat", "stack", "clone", "_to_copy", "copy", "constant_pad_nd", "repeat"), "copy"),
    **dict.fromkeys(
        ("gelu", "relu", "silu", "sigmoid", "tanh", "elu", "leaky_relu", "hardtanh", "hardswish", "mish"),
        "gelu",
    ),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), "softmax"),
    **dict.fromkeys(("native_dropout", "bernoulli"), "dropout"),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), "cross_entropy"),
    **dict.fromkeys(("native_batch_norm", "cudnn_batch_norm"), "batch_norm"),
    "native_layer_norm": "layer_norm",
    "_fused_rms_norm": "rms_norm",
    "native_group_norm": "group_norm",
    "embedding": "embedding",
}
"""The measured kernel that an operator resembles, by its name without the underscore of those in place."""


def layers_of(recording: Recording) -> list[TracedLayer]:
    """Return the layers of a run, with the sizes of its batch. Raises UntraceableModule where nothing ran."""
    blocks = blocks_of(recording)
    if not blocks:
        raise UntraceableModule("the module runs no operator")
    flows, saved = flows_of(recording, blocks)
    weights = _Weights(recording, blocks)
    return [
        _layer(recording, block, flow, saved, weights, place)
        for place, (block, flow) in enumerate(zip(blocks, flows, strict=True))
    ]


def _layer(
    recording: Recording,
    block: Block,
    flow: LayerFlow,
    saved: Mapping[int, Volume],
    weights: "_Weights",
    place: int,
) -> TracedLayer:
    operators = [
        operator
        for number in range(block.start, block.end)
        for operator in _operators(recording.calls[number], saved.get(number, EMPTY))
    ]
    return TracedLayer(
        role=block.role,
        operators_of_sample=tuple(named(operators)),
        parameters=weights.trained[place],
        buffers=weights.kept[place],
        tied_parameters=weights.tied[place],
        output=total(flow.output),
        saved_input=total(flow.saved_input),
        other_input=total(flow.other_input),
    )


def named(operators: Sequence[TracedOperator]) -> Iterator[TracedOperator]:
    """Yield operators with a number after the name of each that is not the first of that name."""
    seen: Counter[str] = Counter()
    for operator in operators:
        seen[operator.name] += 1
        number = seen[operator.name]
        yield operator if number == 1 else replace(operator, name=f"{operator.name} {number}")


def _operators(call: Call, saved: Volume) -> Iterator[TracedOperator]:
    """Yield what a call is to the planner: a product and what else its backward does, a pass, or nothing."""
    product = product_of(call)
    gradients = [gradient for gradient in call.gradients if product is None or not is_product(gradient)]
    name, flops = call.operator.strip("_"), depthwise_flops(call)
    if product is not None:
        yield replace(product, saved=saved)
    others = TracedPass(
        name=name if product is None else f"{name} bias",
        resembles="depthwise" if flops else RESEMBLES.get(call.operator.removesuffix("_"), name),
        forward=call.moved if product is None else EMPTY,
        backward=total([gradient.moved for gradient in gradients]),
        flops=flops,
        repeat=call.repeat,
        saved=saved if product is None else EMPTY,
    )
    if (others.forward, others.backward, others.saved) != (EMPTY, EMPTY, EMPTY):
        yield others


class _Weights:
    """Counts parameters and buffers in the first layer that reads them; what no layer reads, in the last."""

    def __init__(self, recording: Recording, blocks: Sequence[Block]) -> None:
        readers: dict[int, list[int]] = {}
        for layer, block in enumerate(blocks):
            for call in recording.calls[block.start : block.end]:
                for view in call.reads:
                    known = readers.setdefault(view.storage.number, [])
                    if layer not in known:
                        known.append(layer)
        self.trained, self.kept, self.tied = ([0] * len(blocks) for _ in range(3))
        for weight in (*recording.module.parameters(), *recording.module.buffers()):
            number = recording.storages.view(weight).storage.number
            first, *others = readers.get(number, [len(blocks) - 1])
            is_trained = isinstance(weight, torch.nn.Parameter) and weight.requires_grad
            (self.trained if is_trained else self.kept)[first] += prod(weight.shape)
            for other in others if is_trained else ():
                self.tied[other] += prod(weight.shape)
