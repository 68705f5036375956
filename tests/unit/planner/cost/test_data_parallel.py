"""What replicas send each other, by the groups that share each state."""

from dataclasses import replace

import pytest

from planner.cost.data_parallel import ReplicaCosts
from planner.cost.replicas import expert_sharding
from planner.cost.wire import Wire
from planner.framework import StateWidths
from planner.profile import Estimate, Provenance
from planner.strategy import Mesh, Sharding, ZeroStage
from planner.units import Bytes
from planner.workload.operators import Collective

REPLICAS = 16
PARAMETERS = 1024
WIDTHS = StateWidths(parameter=2, compute=2, gradient=4, held_gradient=4, optimizer=12)
PLAIN = Wire(compute=WIDTHS.compute, gradient=WIDTHS.gradient)
ZERO_3 = Sharding(zero_stage=ZeroStage.PARAMETERS, parameters=16, gradients=16, optimizer=16)
IN_NODES = replace(ZERO_3, parameters=4, gradients=4, optimizer=4)

Sent = list[tuple[Collective, Bytes, int, int]]
GATHER, SCATTER, REDUCE = Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE


def sent_in(traffic: str, sharding: Sharding, *, copies: bool = False, wire: Wire = PLAIN) -> Sent:
    """Return the collectives of some traffic: operation, bytes, ranks and how many replicas apart."""
    sent: Sent = []

    def clock(operation: Collective, payload: Bytes, size: int, step: int) -> Estimate:
        sent.append((operation, payload, size, step))
        return Estimate(seconds=payload, provenance=Provenance.MEASURED, relative_error=0.0)

    costs = ReplicaCosts(
        clock=clock,
        replicas=REPLICAS,
        sharding=sharding,
        widths=WIDTHS,
        wire=wire,
        buckets=False,
        gathers_whole_forward=copies,
    )
    gathered = float(WIDTHS.compute * PARAMETERS)
    match traffic:
        case "forward":
            costs.beside_forward(gathered)
        case "backward":
            costs.beside_backward(gathered, PARAMETERS)
        case "last reduction":
            costs.reduction_per_step(PARAMETERS)
        case "updated parameters":
            costs.gather_per_step(PARAMETERS)
    return sent


@pytest.mark.parametrize(
    ("traffic", "sharding", "sent"),
    [
        ("forward", ZERO_3, [(GATHER, 2048, 16, 1)]),
        ("forward", IN_NODES, [(GATHER, 2048, 4, 1)]),
        ("backward", ZERO_3, [(SCATTER, 4096, 16, 1), (GATHER, 2048, 16, 1)]),
        # All groups average what each of them updates.
        ("backward", IN_NODES, [(SCATTER, 4096, 4, 1), (REDUCE, 1024, 4, 4), (GATHER, 2048, 4, 1)]),
        # All replicas update: groups add up until the last micro-batch, and get back what changed.
        (
            "backward",
            replace(IN_NODES, optimizer=16),
            [(SCATTER, 4096, 4, 1), (GATHER, 2048, 4, 1)],
        ),
        ("last reduction", replace(IN_NODES, optimizer=16), [(SCATTER, 1024, 4, 4)]),
        ("last reduction", replace(IN_NODES, optimizer=8), [(SCATTER, 1024, 2, 4), (REDUCE, 512, 2, 8)]),
        ("updated parameters", replace(IN_NODES, optimizer=16), [(GATHER, 512, 4, 4)]),
        ("last reduction", IN_NODES, []),
        ("updated parameters", IN_NODES, []),
        # ZeRO-1 in groups.
        (
            "last reduction",
            Sharding(zero_stage=ZeroStage.OPTIMIZER, optimizer=4),
            [(SCATTER, 4096, 4, 1), (REDUCE, 1024, 4, 4)],
        ),
        ("updated parameters", Sharding(zero_stage=ZeroStage.OPTIMIZER, optimizer=4), [(GATHER, 2048, 4, 1)]),
        ("last reduction", Sharding(), [(REDUCE, 4096, 16, 1)]),
    ],
)
def test_groups_send_no_further_than_they_must(traffic: str, sharding: Sharding, sent: Sent) -> None:
    assert sent_in(traffic, sharding) == sent


def test_a_copy_in_groups_serves_backward_alone() -> None:
    near = replace(ZERO_3, parameters=4)
    assert sent_in("forward", near, copies=True) == [(GATHER, 2048, 16, 1)]
    assert sent_in("backward", near, copies=True)[-1] == (GATHER, 2048, 4, 1)
    assert sent_in("updated parameters", near, copies=True) == []


def test_the_quickest_of_several_ways_counts() -> None:
    def clock(_operation: Collective, payload: Bytes, size: int, _step: int) -> Estimate:
        return Estimate(seconds=payload * size, provenance=Provenance.MEASURED, relative_error=0.0)

    all_of_them, near = (
        ReplicaCosts(
            clock=clock, replicas=REPLICAS, sharding=sharding, widths=WIDTHS, wire=PLAIN, buckets=False
        )
        for sharding in (ZERO_3, IN_NODES)
    )
    either = replace(all_of_them, others=(near,))
    assert near.beside_forward(2048.0).seconds < all_of_them.beside_forward(2048.0).seconds
    assert either.beside_forward(2048.0) == near.beside_forward(2048.0)


@pytest.mark.parametrize(
    ("size", "expert_parallel", "expert_size"),
    [(16, 4, 4), (8, 4, 2), (4, 4, 1), (2, 4, 1), (8, 1, 8), (1, 4, 1)],
)
def test_experts_are_shared_by_the_same_ranks(size: int, expert_parallel: int, expert_size: int) -> None:
    mesh = Mesh(data_parallel=16, expert_parallel=expert_parallel)
    shared = expert_sharding(Sharding(parameters=size, gradients=size, optimizer=size), mesh)
    assert (shared.parameters, shared.gradients, shared.optimizer) == (expert_size,) * 3
