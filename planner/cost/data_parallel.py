"""What keeping replicas equal costs: reductions of gradients, gathers of parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from planner.cost.tally import CONTENTION_FRACTION, NOTHING, Cause, Family, Tally, booked, exposed, least
from planner.framework import StateWidths
from planner.profile import Estimate
from planner.strategy import Sharding, ZeroStage
from planner.units import Bytes
from planner.workload.operators import Collective

BUCKET_PARAMETERS: Final = 40_000_000
"""Megatron-core's and DeepSpeed's buckets hold about this many parameters (or more at many ranks)."""

GroupClock = Callable[[Collective, Bytes, int, int], Estimate]
"""Times an operation of so many payload bytes over ``size`` ranks, ``step`` replica ranks apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaCosts:
    """Communication of the replicas of one model part.

    ``replicas`` ranks (data x context parallel) hold the same parameters; ``buckets`` tells
    frameworks that communicate in large buckets from those that do it layer by layer.
    """

    clock: GroupClock
    replicas: int
    sharding: Sharding
    widths: StateWidths
    buckets: bool
    pace: float = 1.0
    """Time of its collectives over measured ones."""
    contention_fraction: float = CONTENTION_FRACTION
    others: tuple["ReplicaCosts", ...] = ()
    """Other ways to place and to group the same replicas: whatever is sent takes what the quickest takes."""
    _reductions: dict[int, Tally] = field(default_factory=dict, init=False, repr=False, compare=False)
    _gathers: dict[Bytes, Tally] = field(default_factory=dict, init=False, repr=False, compare=False)

    def reduction(self, parameters: int) -> Tally:
        """Return the time to reduce the gradients of ``parameters`` local parameters."""
        known = self._reductions.get(parameters)
        if known is None:
            ways = (self, *self.others)
            known = self._reductions[parameters] = least(way.reduction_here(parameters) for way in ways)
        return known

    def gather(self, payload: Bytes) -> Tally:
        """Return the time to gather updated or sharded parameters of so many bytes."""
        known = self._gathers.get(payload)
        if known is None:
            ways = (self, *self.others)
            known = self._gathers[payload] = least(way.gather_here(payload) for way in ways)
        return known

    def reduction_here(self, parameters: int) -> Tally:
        """Return the time to reduce gradients in this very way.

        Whole gradients are all-reduced; sharded states take a reduce-scatter over the shard group
        and an all-reduce of the shard over its copies.
        """
        payload = float(self.widths.gradient * parameters)
        group = max(self.sharding.gradients, self.sharding.optimizer)
        if group == 1:
            return self._collective(Collective.ALL_REDUCE, payload, size=self.replicas, step=1)
        inside = self._collective(Collective.REDUCE_SCATTER, payload, size=group, step=1)
        across = self._collective(
            Collective.ALL_REDUCE, payload / group, size=self.replicas // group, step=group
        )
        return inside + across

    def gather_here(self, payload: Bytes) -> Tally:
        """Return the time to gather parameters in this very way."""
        group = max(self.sharding.parameters, self.sharding.optimizer)
        return self._collective(Collective.ALL_GATHER, payload, size=group, step=1)

    def in_forward(self, gathered: Bytes, work: Tally) -> Tally:
        """Return what a layer's forward pass shows of its parameters' gather, per micro-batch."""
        return self._beside(self.beside_forward(gathered), work)

    def beside_forward(self, gathered: Bytes) -> Tally:
        """Return what is sent beside a layer's forward pass."""
        return self.gather(gathered) if self._gathers_in_passes else NOTHING

    def in_backward(self, gathered: Bytes, trained: int, work: Tally) -> Tally:
        """Return what a layer's backward pass shows of gather and reduce-scatter, per micro-batch.

        A layer without a backward pass is not gathered for one.
        """
        return self._beside(self.beside_backward(gathered if work.seconds else 0.0, trained), work)

    def beside_backward(self, gathered: Bytes, trained: int) -> Tally:
        """Return what is sent beside a layer's backward pass."""
        parts = NOTHING
        if self.sharding.zero_stage >= ZeroStage.GRADIENTS:
            parts = parts + self.reduction(trained)
        if self._gathers_in_passes and self.sharding.reshard_after_forward:
            parts = parts + self.gather(gathered)
        return parts

    def _beside(self, communication: Tally, work: Tally) -> Tally:
        return exposed(
            communication, behind_seconds=work.seconds, contention_fraction=self.contention_fraction
        )

    def reduction_per_step(self, trained: int) -> Tally:
        """Return the reduction that runs once a step, after the last micro-batch."""
        return NOTHING if self.sharding.zero_stage >= ZeroStage.GRADIENTS else self.reduction(trained)

    def gather_per_step(self, trained: int) -> Tally:
        """Return the gather of updated parameters that runs once a step (ZeRO-1, ZeRO-2)."""
        if self._gathers_in_passes or self.sharding.zero_stage is ZeroStage.NONE:
            return NOTHING
        return self.gather(float(self.widths.compute * trained))

    @property
    def _gathers_in_passes(self) -> bool:
        """Sharded parameters are gathered in every forward pass; others at most once a step."""
        return self.sharding.parameters > 1

    def _collective(self, operation: Collective, payload: Bytes, *, size: int, step: int) -> Tally:
        if size <= 1 or not payload:
            return NOTHING
        bucket = max(payload, float(self.widths.compute * BUCKET_PARAMETERS)) if self.buckets else payload
        estimate = self.clock(operation, bucket, size, step).scaled(self.pace * payload / bucket)
        return booked(estimate, cause=Cause.DATA_PARALLEL, family=Family.COLLECTIVE)
