"""Passes over gradients and parameters that torch runs between kernels: added up, copied to and fro.

On an accelerator they run beside what they belong to and are part of a framework's pace; a processor that was
profiled runs them one after the other with everything else.
"""

from dataclasses import dataclass

from planner.cost.compute import KernelCosts
from planner.cost.data_parallel import ReplicaCosts
from planner.cost.host_costs import UnitHost
from planner.cost.replicas import Replicas
from planner.cost.states import StateCosts
from planner.cost.tally import NOTHING, Cause, Family, Tally, booked, total
from planner.units import Bytes
from planner.workload.operators import Phase
from planner.workload.weights import Holding, Holdings

COPIED: tuple[str, int] = ("copy", 2)
ADDED: tuple[str, int] = ("add", 3)
"""The kind of pass, and the values that it reads and writes for each of its results."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatePasses:
    """Prices such passes in steps of so many micro-batches."""

    kernels: KernelCosts
    states: StateCosts
    num_micro_batches: int

    def of(self, held: Holdings, replicas: Replicas) -> UnitHost:
        """Return the passes over what a part holds, per micro-batch and per step."""
        shares = [
            (holding, share)
            for holding, share in ((held.dense, replicas.dense), (held.experts, replicas.experts))
            if holding.parameters
        ]
        return UnitHost(
            forward=total(self._gathered(holding, share, again=True) for holding, share in shares),
            backward=total(self._backward(holding, share) for holding, share in shares),
            update=total(self._per_step(holding, share) for holding, share in shares),
        )

    def _backward(self, holding: Holding, share: ReplicaCosts) -> Tally:
        """Return gradients copied together where they are scattered, and added up from the second one on.

        The first micro-batch's are kept as they come. What was freed after forward is gathered again.
        """
        gradients = share.widths.gradient * holding.reduced
        group = share.sharding.gradients
        again = 1 - 1 / self.num_micro_batches
        added = self._pass(ADDED, gradients / group, Cause.COMPUTE).times(again) if again else NOTHING
        together = self._pass(COPIED, gradients, Cause.DATA_PARALLEL) if group > 1 else NOTHING
        gathered = self._gathered(holding, share, again=share.sharding.reshard_after_forward)
        return added + together + gathered

    def _gathered(self, holding: Holding, share: ReplicaCosts, *, again: bool) -> Tally:
        """Return gathered parameters copied to their places in every pass that gathers them."""
        if share.sharding.parameters == 1 or not again:
            return NOTHING
        return self._pass(COPIED, self.states.gathered_bytes(holding), Cause.DATA_PARALLEL)

    def _per_step(self, holding: Holding, share: ReplicaCosts) -> Tally:
        """Return gradients copied together and divided, and updated parameters copied to their places."""
        sharding = share.sharding
        if share.replicas == 1 or sharding.parameters > 1:
            return NOTHING
        whole = share.widths.gradient * holding.reduced
        reduced = NOTHING
        if sharding.gradients == 1:
            own = whole / sharding.optimizer
            reduced = self._pass(COPIED, whole, Cause.DATA_PARALLEL) + self._pass(
                COPIED, own, Cause.DATA_PARALLEL
            )
        if sharding.optimizer == 1:
            return reduced
        return reduced + self._pass(COPIED, self.states.gathered_bytes(holding), Cause.DATA_PARALLEL)

    def _pass(self, kind: tuple[str, int], size: Bytes, cause: Cause) -> Tally:
        name, values = kind
        estimate = self.kernels.moved(name, values * size, phase=Phase.FORWARD)
        return booked(estimate, cause=cause, family=Family.MEMORY_PASS)
