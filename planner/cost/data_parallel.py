"""What keeping replicas equal costs: reductions of gradients, gathers of parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd
from typing import Final

from planner.cost.tally import CONTENTION_FRACTION, NOTHING, Cause, Family, Tally, booked, exposed, least
from planner.cost.wire import Wire
from planner.framework import StateWidths
from planner.profile import Estimate
from planner.strategy import Sharding, ZeroStage
from planner.units import Bytes
from planner.workload.operators import Collective

BUCKET_PARAMETERS: Final = 40_000_000
"""Megatron-core's and DeepSpeed's buckets hold about this many parameters (or more at many ranks)."""

GroupClock = Callable[[Collective, Bytes, int, int], Estimate]
"""Times an operation of so many payload bytes over ``size`` ranks, ``step`` replica ranks apart."""
MemoryClock = Callable[[Bytes], Estimate]
"""Times a pass over so many bytes of the device's memory, read and written."""


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
    wire: Wire
    """The formats that it sends in."""
    buckets: bool
    pace: float = 1.0
    """Time of its collectives over measured ones."""
    contention_fraction: float = CONTENTION_FRACTION
    others: tuple["ReplicaCosts", ...] = ()
    """Other ways to place and to group the same replicas: whatever is sent takes what the quickest takes."""
    gathers_whole_forward: bool = False
    """Whether forward passes gather from all shards of a step, backward passes from nearer copies."""
    moves: MemoryClock | None = None
    """What times converting to them; None where nothing is converted."""
    near: int = 1
    """Replicas that share a node."""
    _known: dict[tuple[object, float], Tally] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def in_forward(self, gathered: Bytes, work: Tally) -> Tally:
        """Return what a layer's forward pass shows of its parameters' gather, per micro-batch."""
        return self._beside(self.beside_forward(gathered), work) + self.converted_forward(gathered)

    def beside_forward(self, gathered: Bytes) -> Tally:
        """Return what is sent beside a layer's forward pass."""
        return self._least(ReplicaCosts._forward_gather, gathered)

    def in_backward(self, gathered: Bytes, trained: int, work: Tally) -> Tally:
        """Return what a layer's backward pass shows of gather and reduce-scatter, per micro-batch.

        A layer without a backward pass is not gathered for one.
        """
        gathered = gathered if work.seconds else 0.0
        shown = self._beside(self.beside_backward(gathered, trained), work)
        return shown + self.converted_backward(gathered, trained)

    def converted_forward(self, gathered: Bytes) -> Tally:
        """Return what converting takes in a forward pass: the device's memory hides nothing of it."""
        return self._least(ReplicaCosts._forward_conversion, gathered)

    def converted_backward(self, gathered: Bytes, trained: int) -> Tally:
        """Return what converting takes in a backward pass, of parameters and of gradients."""
        reduction = self._least(ReplicaCosts._conversion_in_pass, trained)
        return reduction + self._least(ReplicaCosts._backward_conversion, gathered)

    def beside_backward(self, gathered: Bytes, trained: int) -> Tally:
        """Return what is sent beside a layer's backward pass."""
        reduction = self._least(ReplicaCosts._reduction_in_pass, trained)
        return reduction + self._least(ReplicaCosts._backward_gather, gathered)

    def _beside(self, communication: Tally, work: Tally) -> Tally:
        return exposed(
            communication, behind_seconds=work.seconds, contention_fraction=self.contention_fraction
        )

    def reduction_per_step(self, trained: int) -> Tally:
        """Return the reduction that runs once a step, after the last micro-batch, and converting for it."""
        converted = self._least(ReplicaCosts._conversion_after, trained)
        return self._least(ReplicaCosts._reduction_after, trained) + converted

    def gather_per_step(self, trained: int) -> Tally:
        """Return the gather of updated parameters that runs once a step."""
        return self._least(ReplicaCosts._gather_after, trained)

    def _least(self, traffic: "Callable[[ReplicaCosts, float], Tally]", amount: float) -> Tally:
        """Return what some traffic takes in the quickest way."""
        key = (traffic, amount)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = least(traffic(way, amount) for way in (self, *self.others))
        return known

    # --- this very way ---------------------------------------------------------------------------

    def _forward_gather(self, gathered: Bytes) -> Tally:
        """Return the gather before a forward pass: sharded parameters are gathered every time."""
        sent = self.wire.gathered(gathered)
        return self._collective(Collective.ALL_GATHER, sent, size=self._forward_group, step=1)

    def _backward_gather(self, gathered: Bytes) -> Tally:
        sent = self.wire.gathered(gathered)
        return self._collective(Collective.ALL_GATHER, sent, size=self._backward_group, step=1)

    def _forward_conversion(self, gathered: Bytes) -> Tally:
        return self._moved(self.wire.gather_moves(gathered, group=self._forward_group))

    def _backward_conversion(self, gathered: Bytes) -> Tally:
        return self._moved(self.wire.gather_moves(gathered, group=self._backward_group))

    def _conversion_in_pass(self, trained: float) -> Tally:
        return self._converted(trained) if self._reduces_in_passes else NOTHING

    def _conversion_after(self, trained: float) -> Tally:
        return NOTHING if self._reduces_in_passes else self._converted(trained)

    def _converted(self, trained: float) -> Tally:
        moved = self.wire.reduction_moves(trained, group=self.replicas, near=self._near(self.replicas))
        return self._moved(moved)

    def _reduction_in_pass(self, trained: float) -> Tally:
        """Return the reduction that every micro-batch asks for where gradients are sharded.

        Groups that update what they share average it with the other groups at once; smaller ones leave
        that to the end of the step.
        """
        group = self.sharding.gradients
        if not self._reduces_in_passes:
            return NOTHING
        if group >= self.sharding.optimizer:
            return self._averaged(trained, group)
        return self._collective(Collective.REDUCE_SCATTER, self._gradients(trained), size=group, step=1)

    def _reduction_after(self, trained: float) -> Tally:
        """Return the reduction that waits for the last micro-batch."""
        few, many = self.sharding.gradients, self.sharding.optimizer
        if not self._reduces_in_passes:
            return self._averaged(trained, many)
        if few >= many:
            return NOTHING
        shard = self._gradients(trained) / few
        between = self._collective(Collective.REDUCE_SCATTER, shard, size=many // few, step=few)
        return between + self._across(shard / (many // few), many)

    def _gather_after(self, trained: float) -> Tally:
        """Return the gather of what larger groups update than hold the parameters.

        Where forward passes gather from all of them there is nothing left to do.
        """
        few, many = self.sharding.parameters, self.sharding.optimizer
        if few >= many or (self._gathers_in_passes and self.gathers_whole_forward):
            return NOTHING
        shard = self.wire.gathered(float(self.widths.compute * trained)) / few
        return self._collective(Collective.ALL_GATHER, shard, size=many // few, step=few)

    def _averaged(self, trained: float, group: int) -> Tally:
        """Return the sum over all replicas, of which each rank of a group keeps its shard.

        Whole gradients are all-reduced; others take a reduce-scatter over the shard group and an all-reduce
        of the shard over its copies. In place of the reduce-scatter quantized ones are exchanged within a
        node, and their sums between nodes.
        """
        gradients = self._gradients(trained)
        if self.wire.exchanges:
            near = self._near(group)
            inside = self._collective(Collective.ALL_TO_ALL, gradients, size=near, step=1)
            inside += self._collective(Collective.ALL_TO_ALL, gradients / near, size=group // near, step=near)
        else:
            inside = self._collective(Collective.REDUCE_SCATTER, gradients, size=group, step=1)
        return inside + self._across(gradients / group, group)

    def _across(self, shard: Bytes, group: int) -> Tally:
        """Return the all-reduce of a shard over its copies in all groups."""
        return self._collective(Collective.ALL_REDUCE, shard, size=self.replicas // group, step=group)

    def _gradients(self, trained: float) -> Bytes:
        return self.wire.reduced(trained)

    @property
    def _forward_group(self) -> int:
        """The ranks that forward passes gather from; 1 where they gather nothing."""
        own = self.sharding.parameters
        return max(own, self.sharding.optimizer) if own > 1 and self.gathers_whole_forward else own

    @property
    def _backward_group(self) -> int:
        return self.sharding.parameters if self.sharding.reshard_after_forward else 1

    def _near(self, group: int) -> int:
        """Return how many ranks of a group share a node."""
        return gcd(self.near, group)

    @property
    def _reduces_in_passes(self) -> bool:
        """Whether gradients are reduced with every micro-batch, as far as those are sharded."""
        return self.sharding.zero_stage >= ZeroStage.GRADIENTS

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

    def _moved(self, size: Bytes) -> Tally:
        if not size or self.moves is None:
            return NOTHING
        return booked(self.moves(size), cause=Cause.DATA_PARALLEL, family=Family.MEMORY_PASS)
