"""Layers with what keeps their replicas equal: gathers, reductions, updates, and the states at rest."""

from planner.cost.host_costs import UnitHost
from planner.cost.layout_costs import PartCost, Run
from planner.cost.machine_facts import MachineFacts
from planner.cost.memory import StateBytes
from planner.cost.replicas import Replicas
from planner.cost.states import StateCosts
from planner.cost.tally import NOTHING, total
from planner.workload.weights import Holdings


def shared_part(
    run: Run,
    replicas: Replicas,
    *,
    held: Holdings,
    host: UnitHost,
    states: StateCosts,
    beside: MachineFacts | None,
) -> PartCost:
    """Return layers that run so, and hold so much, with what their replicas exchange.

    ``beside`` tells what reductions cost the backward passes that they run beside; None where they wait.
    """
    forward, backward = run.forward, run.backward
    shares = [
        (holding, holding.parameters / held.parameters, share)
        for holding, share in ((held.dense, replicas.dense), (held.experts, replicas.experts))
        if holding.parameters
    ]
    # Experts and the rest share the work that hides their traffic.
    in_forward = [
        share.in_forward(states.gathered_bytes(holding), forward.times(part))
        for holding, part, share in shares
    ]
    in_backward = [
        share.in_backward(states.gathered_bytes(holding), holding.reduced, backward.times(part))
        for holding, part, share in shares
    ]
    reduce = total(share.reduction_per_step(holding.reduced) for holding, _, share in shares)
    lost = beside.lost_beside(reduce, backward) if beside else NOTHING
    return PartCost(
        forward=total((forward, *in_forward, host.forward)),
        backward=total((backward, *in_backward, host.backward)),
        saved_bytes=run.saved_bytes,
        working_bytes=run.working_bytes,
        logits_bytes=run.logits_bytes,
        split=run.split,
        gathered_bytes=sum(states.gathered_bytes(holding) for holding, _, _ in shares),
        trained_parameters=held.dense.trained.parameters + held.experts.trained.parameters,
        states=sum(
            (
                states.at_rest(holding, share.sharding, replicas=share.replicas)
                for holding, _, share in shares
            ),
            StateBytes(),
        ),
        optimizer=total(
            (
                *(states.update(holding.trained, share.sharding) for holding, _, share in shares),
                host.update,
                lost,
            )
        ),
        gather=total(share.gather_per_step(holding.trained.parameters) for holding, _, share in shares),
        reduce=reduce,
    )
