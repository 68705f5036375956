"""What a layout costs, part by part, and the same as the search sees it: integer durations and bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

from planner.cost.layer import LayerCost
from planner.cost.memory import StateBytes
from planner.cost.pipeline import FixedPart, LayerClass, LayerOption
from planner.cost.tally import Tally, total
from planner.strategy import Recompute
from planner.units import Bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Layers that run one after the other: time and bytes of one micro-batch."""

    forward: Tally
    backward: Tally
    saved_bytes: Bytes
    working_bytes: Bytes
    logits_bytes: Bytes
    gathered_input_bytes: Bytes

    @classmethod
    def of(cls, layers: Sequence[LayerCost[Tally]]) -> Self:
        """Return layers one after the other; working memory is reused, the rest adds up."""
        return cls(
            forward=total(layer.forward for layer in layers),
            backward=total(layer.backward for layer in layers),
            saved_bytes=sum(layer.saved_bytes for layer in layers),
            working_bytes=max((layer.working_bytes for layer in layers), default=0.0),
            logits_bytes=sum(layer.logits_bytes for layer in layers),
            gathered_input_bytes=sum(layer.gathered_input_bytes for layer in layers),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PartCost:
    """What counted layers, or one end of the chain, cost one device besides recomputation choices.

    ``forward`` and ``backward`` are per micro-batch and hold what passes show of sharding;
    ``optimizer``, ``gather`` and ``reduce`` are per step.
    """

    forward: Tally
    backward: Tally
    saved_bytes: Bytes
    working_bytes: Bytes
    logits_bytes: Bytes
    gathered_input_bytes: Bytes
    """What saved inputs take beyond their tensor-parallel shards, where they are saved gathered."""
    gathered_bytes: Bytes
    """Of all parameters, as gathers move them."""
    trained_parameters: int
    states: StateBytes
    optimizer: Tally
    gather: Tally
    reduce: Tally


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutCosts:
    """Every figure behind a layout's problem, with its causes and errors.

    ``layers`` holds one entry per recomputation option of the first class, then those of the next one, as
    an assignment counts them; ``first`` and ``last`` the chain's ends.
    ``between_passes`` is what every pass of a pipelined stage takes besides its layers.
    """

    layers: tuple[PartCost, ...]
    first: PartCost
    last: PartCost
    between_passes: Tally
    transfer: Tally
    barrier: Tally
    tied: Tally
    base_bytes: Bytes
    buffer_bytes: Bytes
    capacity_bytes: Bytes
    fragmentation_fraction: float

    def reserved(self, size: Bytes) -> int:
        """Return the bytes that an allocator reserves for tensors of so many bytes that come and go."""
        return ceil(size * (1 + self.fragmentation_fraction))


def layer_class(recompute: Sequence[Recompute], parts: Sequence[PartCost], costs: LayoutCosts) -> LayerClass:
    """Return a class of counted layers with its ways to run, one part for each."""
    first = parts[0]
    return LayerClass(
        options=tuple(_option(mode, part, costs) for mode, part in zip(recompute, parts, strict=True)),
        static_bytes=ceil(first.states.total),
        optimizer_ns=first.optimizer.nanoseconds,
        gather_ns=first.gather.nanoseconds,
        reduce_ns=first.reduce.nanoseconds,
    )


def _option(recompute: Recompute, part: PartCost, costs: LayoutCosts) -> LayerOption:
    return LayerOption(
        recompute=recompute,
        forward_ns=part.forward.nanoseconds,
        backward_ns=part.backward.nanoseconds,
        saved_bytes=costs.reserved(part.saved_bytes),
        working_bytes=costs.reserved(part.working_bytes),
    )


def fixed_part(part: PartCost, costs: LayoutCosts) -> FixedPart:
    """Return an end of the chain."""
    return FixedPart(
        forward_ns=part.forward.nanoseconds,
        backward_ns=part.backward.nanoseconds,
        saved_bytes=costs.reserved(part.saved_bytes),
        working_bytes=costs.reserved(part.working_bytes),
        static_bytes=ceil(part.states.total),
        optimizer_ns=part.optimizer.nanoseconds,
        gather_ns=part.gather.nanoseconds,
        reduce_ns=part.reduce.nanoseconds,
    )
