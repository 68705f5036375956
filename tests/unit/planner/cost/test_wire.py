"""What quantized gathers and reductions move, by the arithmetic of ZeRO++ (Wang et al., 2023)."""

from dataclasses import replace

import pytest

from planner.cost.data_parallel import ReplicaCosts
from planner.cost.wire import Wire, wire_of
from planner.framework import StateWidths
from planner.frameworks import FRAMEWORKS
from planner.job import Precision
from planner.profile import Estimate, Provenance
from planner.strategy import Sharding, ZeroStage
from planner.units import Bytes
from planner.wire import SCALED_VALUES, WireFormat
from planner.workload.operators import Collective

NODES, PER_NODE = 4, 8
REPLICAS = NODES * PER_NODE
PARAMETERS = 2**20
WIDTHS = StateWidths(parameter=2, compute=2, gradient=2, held_gradient=2, optimizer=12)
ZERO_3 = Sharding(
    zero_stage=ZeroStage.PARAMETERS, parameters=REPLICAS, gradients=REPLICAS, optimizer=REPLICAS
)
SCALES = 4 / SCALED_VALUES
"""Bytes of scales per value."""

Sent = list[tuple[Collective, Bytes, int, int]]


def wire(precision: Precision = Precision.FP16, framework: str = "deepspeed", **dtypes: str) -> Wire:
    return wire_of(FRAMEWORKS[framework], replace(ZERO_3, **dtypes), WIDTHS, precision)  # type: ignore[arg-type]


def sent_and_moved(sharding: Sharding, sent_as: Wire) -> tuple[Sent, Sent, list[Bytes]]:
    """Return the collectives of a forward and of a backward pass, and the bytes of all conversions."""
    sent: Sent = []
    moved: list[Bytes] = []

    def clock(operation: Collective, payload: Bytes, size: int, step: int) -> Estimate:
        sent.append((operation, payload, size, step))
        return Estimate(seconds=payload, provenance=Provenance.MEASURED, relative_error=0.0)

    def moves(size: Bytes) -> Estimate:
        moved.append(size)
        return Estimate(seconds=size, provenance=Provenance.MEASURED, relative_error=0.0)

    costs = ReplicaCosts(
        clock=clock,
        replicas=REPLICAS,
        sharding=sharding,
        widths=WIDTHS,
        wire=sent_as,
        buckets=False,
        moves=moves,
        near=PER_NODE,
    )
    gathered = float(WIDTHS.compute * PARAMETERS)
    costs.beside_forward(gathered)
    costs.converted_forward(gathered)
    forward = list(sent)
    costs.beside_backward(gathered, PARAMETERS)
    costs.converted_backward(gathered, PARAMETERS)
    return forward, sent[len(forward) :], moved


def between_nodes(sent: Sent) -> Bytes:
    """Return what a node sends others, over parameters of one byte: as ZeRO++'s table 1 counts it."""
    share = (NODES - 1) / NODES
    crossing = 0.0
    for operation, payload, size, step in sent:
        if operation is Collective.ALL_TO_ALL:
            # Every rank of the node sends a part of its own; those within a node cross nothing.
            crossing += PER_NODE * payload * share if step == PER_NODE else 0.0
        elif size == REPLICAS:
            crossing += payload * share
    return crossing / share / PARAMETERS


def test_a_step_of_zero_3_sends_three_times_the_model_between_nodes_and_zero_plus_plus_three_quarters() -> (
    None
):
    """M forward, M backward, M of gradients in two bytes; 0.5 M, none from a copy in the node, 0.25 M."""
    plain_forward, plain_backward, _ = sent_and_moved(ZERO_3, wire())
    model = WIDTHS.compute
    assert between_nodes(plain_forward + plain_backward) == pytest.approx(3 * model)
    with_copies = replace(ZERO_3, parameters=PER_NODE)
    quantized = wire(gather_dtype="int8", reduce_dtype="int4")
    gathered_whole = sent_and_moved(ZERO_3, quantized)[0]
    backward = sent_and_moved(with_copies, quantized)[1]
    assert between_nodes(gathered_whole) == pytest.approx(0.5 * model + SCALES)
    assert between_nodes(backward) == pytest.approx(0.25 * model + SCALES)


def test_quantized_gathers_halve_what_is_sent_and_pass_over_the_memory() -> None:
    _, _, moved = sent_and_moved(ZERO_3, wire(gather_dtype="int8"))
    eight_bits = 1 + SCALES
    shard = (2 + eight_bits) * PARAMETERS / REPLICAS
    restored = (eight_bits + 2) * PARAMETERS
    assert moved == pytest.approx([shard + restored] * 2)


def test_quantized_sums_are_exchanged_within_a_node_and_then_between_nodes() -> None:
    _, backward, moved = sent_and_moved(ZERO_3, wire(reduce_dtype="int4"))
    four_bits = (0.5 + SCALES) * PARAMETERS
    assert backward[:2] == [
        (Collective.ALL_TO_ALL, four_bits, PER_NODE, 1),
        (Collective.ALL_TO_ALL, four_bits / PER_NODE, NODES, PER_NODE),
    ]
    whole = 2 * PARAMETERS
    quantized = whole + four_bits
    summed = four_bits + four_bits / PER_NODE
    restored = four_bits / PER_NODE + 2 * whole / PER_NODE + whole / REPLICAS
    assert moved == pytest.approx([quantized + summed + restored])


def test_deepspeed_copies_bf16_for_kernels_of_fp16() -> None:
    whole = 2.0 * PARAMETERS
    own, other = (
        wire(precision, gather_dtype="int8", reduce_dtype="int4")
        for precision in (Precision.FP16, Precision.BF16)
    )
    # The shard and the whole, each read and written.
    more = other.gather_moves(whole, group=REPLICAS) - own.gather_moves(whole, group=REPLICAS)
    assert more == pytest.approx(2 * whole * (1 + 1 / REPLICAS))
    reduced = [each.reduction_moves(PARAMETERS, group=REPLICAS, near=PER_NODE) for each in (own, other)]
    assert reduced[1] - reduced[0] == pytest.approx(2 * whole)


def test_products_read_fp8_as_it_comes() -> None:
    eight_bits = wire(Precision.FP8, framework="megatron-core", gather_dtype="fp8")
    assert eight_bits.gathered(2.0 * PARAMETERS) == PARAMETERS
    assert eight_bits.gather_moves(2.0 * PARAMETERS, group=8) == pytest.approx(3 * PARAMETERS / 8)
    assert eight_bits.at_ends.gathered(2.0 * PARAMETERS) == 2 * PARAMETERS


def test_what_is_quantized_takes_room_of_its_own_on_its_way() -> None:
    whole = 2.0 * PARAMETERS
    each = {
        "plain": wire(),
        "gathers": wire(gather_dtype="int8"),
        "reductions": wire(reduce_dtype="int4"),
    }
    room = {
        name: own.staged(gathered_bytes=whole, trained=PARAMETERS, layers=2) for name, own in each.items()
    }
    assert room["plain"] == 0.0
    assert room["gathers"] == pytest.approx(2 * (1 + SCALES) * PARAMETERS)
    assert room["reductions"] == pytest.approx(2 * (0.5 + SCALES) * PARAMETERS)


def test_gradients_that_accumulate_as_they_are_reduced_rest_so() -> None:
    wide = FRAMEWORKS["megatron-core"].widths(Precision.BF16, moment_values=2)
    whole = Sharding(zero_stage=ZeroStage.OPTIMIZER, optimizer=8, reduce_dtype="bf16")
    sharded = replace(ZERO_3, reduce_dtype="bf16")
    own, other = (
        wire_of(FRAMEWORKS["megatron-core"], sharding, wide, Precision.BF16) for sharding in (whole, sharded)
    )
    assert own.reduced(1.0) == other.reduced(1.0) == 2.0
    assert wide.accumulating(own.reduces).gradient == 2.0
    assert wide.accumulating(other.reduces).gradient == 4.0


@pytest.mark.parametrize(("name", "size"), [("fp32", 4), ("bf16", 2), ("fp8", 1), ("int8", 1), ("int4", 0.5)])
def test_only_blocks_have_scales(name: str, size: float) -> None:
    scaled = name.startswith("int")
    assert WireFormat(name).bytes_per_value == size + (SCALES if scaled else 0)
