"""Sizes of one sample, from runs with several batches: what grows with the batch, and what does not.

Every size of every layer has to lie on one straight line over the batches; a module for which one does
not mixes its samples, and is refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from planner.workload.traced import (
    SampleDim,
    TracedAttention,
    TracedLayer,
    TracedOperator,
    TracedPass,
    TracedProduct,
    Volume,
)
from profiler.tracing.errors import UntraceableModule
from profiler.tracing.layers import named

DIMS: Final = (SampleDim.ROWS, SampleDim.COLUMNS, SampleDim.INNER, SampleDim.COUNT)

NUMBER: Final = re.compile(r" \d+$")
"""What tells operators of one name apart."""

Sizes = Mapping[int, int]
"""A size by the batch that it was seen with."""


def layers_per_sample(runs: Mapping[int, Sequence[TracedLayer]]) -> list[TracedLayer]:
    """Return layers by the sizes of one sample, given those of whole batches by the size of the batch.

    Raises UntraceableModule where the batches differ in more than sizes, or sizes do not grow evenly.
    """
    counts = {batch: len(layers) for batch, layers in runs.items()}
    if len(set(counts.values())) > 1:
        raise UntraceableModule(f"the module has another number of layers for another batch: {counts}")
    columns = zip(*runs.values(), strict=True)
    return [_layer(dict(zip(runs, column, strict=True))) for column in columns]


def _layer(seen: Mapping[int, TracedLayer]) -> TracedLayer:
    first = next(iter(seen.values()))
    what = f"layer {first.role}"
    names = {tuple(operator.name for operator in layer.operators_of_sample) for layer in seen.values()}
    if len(names) > 1:
        raise UntraceableModule(f"{what} runs other operators for another batch")
    columns = zip(*(layer.operators_of_sample for layer in seen.values()), strict=True)
    operators = [_operator(dict(zip(seen, column, strict=True)), what) for column in columns]
    return replace(first, operators_of_sample=tuple(grouped(operators)), **_volumes(seen, what))


def grouped(operators: Sequence[TracedOperator]) -> list[TracedOperator]:
    """Return operators with those that differ by their name alone in one, which is repeated."""
    times: dict[TracedOperator, int] = {}
    for operator in operators:
        key = replace(operator, name=NUMBER.sub("", operator.name), repeat=1)
        times[key] = times.get(key, 0) + operator.repeat
    return list(named([replace(key, repeat=count) for key, count in times.items()]))


def _operator(seen: Mapping[int, TracedOperator], what: str) -> TracedOperator:
    first = next(iter(seen.values()))
    where = f"{first.name} of {what}"
    match first:
        case TracedProduct():
            sizes = _product_sizes(seen, where)
        case TracedAttention():
            sizes = {"batch": _proportional(_sizes(seen, "batch"), where)}
        case TracedPass():
            sizes = {"flops": _proportional(_sizes(seen, "flops"), where)}
    return replace(first, **sizes, **_volumes(seen, where))


def _sizes(seen: Mapping[int, object], name: str) -> Sizes:
    return {batch: getattr(one, name) for batch, one in seen.items()}


def _volumes(seen: Mapping[int, Any], where: str) -> dict[str, Any]:
    """Return every volume of some things by its name, as one of a sample."""
    first = next(iter(seen.values()))
    names = [field.name for field in fields(first) if isinstance(getattr(first, field.name), Volume)]
    return {
        name: _volume({batch: getattr(one, name) for batch, one in seen.items()}, f"{name} of {where}")
        for name in names
    }


def _product_sizes(seen: Mapping[int, object], where: str) -> dict[str, Any]:
    """Return the sizes of one sample, and which of them grows."""
    sizes: dict[str, Any] = {"grows": SampleDim.NONE}
    for dim in DIMS:
        values = _sizes(seen, dim.value)
        if len(set(values.values())) == 1:
            continue
        if sizes["grows"] is not SampleDim.NONE:
            raise _uneven(where, values)
        sizes |= {"grows": dim, dim.value: _proportional(values, where)}
    inputs = _sizes(seen, "input_elements")
    if None not in inputs.values():
        sizes["input_elements"] = _proportional(inputs, where)
    return sizes


def _volume(seen: Mapping[int, Volume], where: str) -> Volume:
    elements, fixed_elements = _line({batch: volume.elements for batch, volume in seen.items()}, where)
    size, fixed_bytes = _line({batch: volume.bytes for batch, volume in seen.items()}, where)
    return Volume(elements=elements, bytes=size, fixed_elements=fixed_elements, fixed_bytes=fixed_bytes)


def _proportional(sizes: Sizes, where: str) -> int:
    """Return the size of one sample; refuse one that does not vanish without samples."""
    per_sample, fixed = _line(sizes, where)
    if fixed:
        raise _uneven(where, sizes)
    return per_sample


def _line(sizes: Sizes, where: str) -> tuple[int, int]:
    """Return what a size grows by with each sample, and what is left without any."""
    (low, at_low), (high, at_high), *_ = sorted(sizes.items())
    per_sample = (at_high - at_low) // (high - low)
    fixed = at_low - per_sample * low
    is_line = all(size == fixed + per_sample * batch for batch, size in sizes.items())
    if not is_line or per_sample < 0 or fixed < 0:
        raise _uneven(where, sizes)
    return per_sample, fixed


def _uneven(where: str, sizes: Sizes) -> UntraceableModule:
    seen = ", ".join(f"{size} with a batch of {batch}" for batch, size in sorted(sizes.items()))
    return UntraceableModule(f"{where} does not grow evenly with the batch ({seen}): samples are mixed")
