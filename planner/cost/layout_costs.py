"""What a layout costs, part by part, and the same as the search sees it: integer durations and bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Self

from planner.cost.layer import LayerCost
from planner.cost.memory import StateBytes
from planner.cost.pipeline import FixedPart, LayerClass, LayerOption
from planner.cost.split_backward import WHOLE, SplitBackward
from planner.cost.tally import Tally, total
from planner.strategy import LayerWay
from planner.units import NANOSECONDS_PER_SECOND, Bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Layers that run one after the other: time and bytes of one micro-batch."""

    forward: Tally
    backward: Tally
    saved_bytes: Bytes
    working_bytes: Bytes
    logits_bytes: Bytes
    split: SplitBackward = WHOLE

    @classmethod
    def of(cls, layers: Sequence[LayerCost[Tally]]) -> Self:
        """Return layers one after the other; working memory is reused, the rest adds up."""
        return cls(
            forward=total(layer.forward for layer in layers),
            backward=total(layer.backward for layer in layers),
            saved_bytes=sum(layer.saved_bytes for layer in layers),
            working_bytes=max((layer.working_bytes for layer in layers), default=0.0),
            logits_bytes=sum(layer.logits_bytes for layer in layers),
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
    gathered_bytes: Bytes
    """Of all parameters, as gathers move them."""
    trained_parameters: int
    states: StateBytes
    optimizer: Tally
    gather: Tally
    reduce: Tally
    staged_bytes: Bytes = 0.0
    """What passes through the device on its way from and to the host, at any moment."""
    host_bytes: Bytes = 0.0
    """What one device keeps on its host through a whole step."""
    host_saved_bytes: Bytes = 0.0
    """What it keeps there of one micro-batch until backward."""
    split: SplitBackward = WHOLE

    def backward_pass(self, *, is_split: bool) -> Tally:
        """Return the backward pass, or what both of its parts take where they are passes of their own."""
        return self.backward + self.split.more if is_split else self.backward

    def backward_ns(self, *, is_split: bool) -> int:
        """Return the backward pass as the search sees it: split, it never takes less than whole."""
        whole = self.backward.nanoseconds
        return max(self.backward_pass(is_split=True).nanoseconds, whole) if is_split else whole

    def weight_ns(self, *, is_split: bool) -> int:
        """Return the part of the backward pass that makes gradients of weights, where it is split."""
        return round(self.split.weight_seconds * NANOSECONDS_PER_SECOND) if is_split else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPart:
    """What of a part can go to the host, of one device.

    ``parameter_bytes`` are its own shard, ``gradient_bytes`` what one micro-batch leaves of gradients once
    they are reduced as far as they are every time. The update reads and writes ``update_bytes`` for each of
    ``updated_parameters``, and exchanges gradients and parameters of the given sizes with the device.
    """

    parameter_bytes: Bytes = 0.0
    gradient_bytes: Bytes = 0.0
    updated_parameters: int = 0
    update_bytes: float = 0.0
    update_gradient_bytes: Bytes = 0.0
    update_parameter_bytes: Bytes = 0.0

    def __add__(self, other: "HostPart") -> "HostPart":
        """Return both, with the mean of what an update moves per parameter."""
        updated = self.updated_parameters + other.updated_parameters
        moved = self.update_bytes * self.updated_parameters + other.update_bytes * other.updated_parameters
        return HostPart(
            parameter_bytes=self.parameter_bytes + other.parameter_bytes,
            gradient_bytes=self.gradient_bytes + other.gradient_bytes,
            updated_parameters=updated,
            update_bytes=moved / updated if updated else 0.0,
            update_gradient_bytes=self.update_gradient_bytes + other.update_gradient_bytes,
            update_parameter_bytes=self.update_parameter_bytes + other.update_parameter_bytes,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutCosts:
    """Every figure behind a layout's problem, with its causes and errors.

    ``layers`` holds one entry per way to run a layer of the first class, then those of the next one, as
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
    withheld_bytes: Bytes
    """What is free and cannot be used again yet, as collectives have still to read it."""
    capacity_bytes: Bytes
    fragmentation_fraction: float
    is_split: bool = False
    """Whether gradients of weights are passes of their own."""

    def reserved(self, size: Bytes) -> int:
        """Return the bytes that an allocator reserves for tensors of so many bytes that come and go."""
        return ceil(size * (1 + self.fragmentation_fraction))


def layer_class(
    ways: Sequence[LayerWay], parts: Sequence[PartCost], costs: LayoutCosts, *, hosts_bind: bool
) -> LayerClass:
    """Return a class of counted layers with its ways to run, one part for each.

    What is on hosts that never overflow counts for nothing. An update waits for what reductions took from the
    backward passes beside them, more beside longer ones: the least of any way counts.
    """
    first = parts[0]
    options = (_option(way, part, costs) for way, part in zip(ways, parts, strict=True))
    if not hosts_bind:
        options = (replace(option, host_saved_bytes=0) for option in options)
    return LayerClass(
        options=tuple(options),
        static_bytes=ceil(first.states.total),
        host_bytes=ceil(first.host_bytes) if hosts_bind else 0,
        optimizer_ns=min(part.optimizer.nanoseconds for part in parts),
        gather_ns=first.gather.nanoseconds,
        reduce_ns=first.reduce.nanoseconds,
    )


def _option(way: LayerWay, part: PartCost, costs: LayoutCosts) -> LayerOption:
    return LayerOption(
        recompute=way.recompute,
        activations=way.activations,
        host_saved_bytes=ceil(part.host_saved_bytes),
        forward_ns=part.forward.nanoseconds,
        backward_ns=part.backward_ns(is_split=costs.is_split),
        saved_bytes=costs.reserved(part.saved_bytes),
        working_bytes=costs.reserved(part.working_bytes),
        weight_ns=part.weight_ns(is_split=costs.is_split),
        held_bytes=costs.reserved(part.split.held_bytes) if costs.is_split else 0,
    )


def fixed_part(part: PartCost, costs: LayoutCosts) -> FixedPart:
    """Return an end of the chain."""
    return FixedPart(
        forward_ns=part.forward.nanoseconds,
        backward_ns=part.backward_ns(is_split=costs.is_split),
        saved_bytes=costs.reserved(part.saved_bytes),
        working_bytes=costs.reserved(part.working_bytes),
        weight_ns=part.weight_ns(is_split=costs.is_split),
        held_bytes=costs.reserved(part.split.held_bytes) if costs.is_split else 0,
        static_bytes=ceil(part.states.total),
        host_bytes=ceil(part.host_bytes),
        optimizer_ns=part.optimizer.nanoseconds,
        gather_ns=part.gather.nanoseconds,
        reduce_ns=part.reduce.nanoseconds,
    )
