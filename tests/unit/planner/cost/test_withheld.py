"""What is freed and cannot be used again, of layers whose outputs 4 tensor-parallel ranks scatter."""

from dataclasses import replace

import pytest

from planner.cost.layer import LayerPasses
from planner.cost.model import CostModel
from planner.cost.tally import Cause, Tally, constant
from planner.cost.withheld import WAITING_SHARE, withheld_bytes
from planner.footprint import Footprint
from planner.profile import builtin_profile
from planner.strategy import Mesh
from tests.unit.planner.settings import setting

LAYERS = 32
OUTPUT_BYTES = 2 * 4096 * 4096
"""Two bytes for each channel of each token."""
QUEUED = Footprint(queued_layers=20)


def decoder(*, sequence_parallel: bool = True, waits: bool = False) -> LayerPasses[Tally]:
    given = setting(model="llama-3-8b", framework="nanotron", sequence_length=4096)
    model = CostModel(
        setting=given,
        group=given.cluster.node_groups[0],
        profiles=[builtin_profile("h100-sxm/published")],
        memory_fraction=0.94,
    )
    mesh = Mesh(tensor_parallel=4, sequence_parallel=sequence_parallel)
    (layer,) = {layer for layer in model.passes(mesh, 1) if layer.kind == "decoder"}
    busy = constant(1.0, cause=Cause.COMPUTE, relative_error=0.0)
    idle = constant(2 * WAITING_SHARE * waits, cause=Cause.OVERHEAD, relative_error=0.0)
    return replace(model.passes(mesh, 1)[layer], forward=busy + idle, backward=busy + idle)


def withheld(
    passes: LayerPasses[Tally],
    *,
    num_stages: int,
    num_micro_batches: int = 64,
    footprint: Footprint = QUEUED,
) -> float:
    return withheld_bytes(
        [[passes]],
        num_layers=LAYERS,
        num_stages=num_stages,
        num_micro_batches=num_micro_batches,
        footprint=footprint,
    )


@pytest.mark.parametrize(
    ("num_stages", "waits", "layers"),
    [
        (1, True, 20),
        (1, False, 20),
        (2, True, 0),
        (2, False, 20),
        (4, True, 16),
        (8, True, 20),
    ],
)
def test_a_host_is_ahead_by_its_queue_or_by_what_it_launches_before_it_waits(
    num_stages: int,
    waits: bool,  # noqa: FBT001 - a case
    layers: int,
) -> None:
    assert withheld(decoder(waits=waits), num_stages=num_stages) == layers * 2 * OUTPUT_BYTES


@pytest.mark.parametrize(
    ("num_micro_batches", "waits", "layers"), [(1, False, 8), (1, True, 0), (3, True, 8)]
)
def test_a_host_is_ahead_by_no_more_passes_than_there_are_micro_batches(
    num_micro_batches: int,
    waits: bool,  # noqa: FBT001 - a case
    layers: int,
) -> None:
    passes = decoder(waits=waits)
    assert withheld(passes, num_stages=4, num_micro_batches=num_micro_batches) == layers * 2 * OUTPUT_BYTES


def test_outputs_that_ranks_sum_in_place_are_not_freed() -> None:
    assert withheld(decoder(sequence_parallel=False), num_stages=1) == 0


def test_programs_that_reuse_what_they_free_withhold_nothing() -> None:
    assert withheld(decoder(), num_stages=1, footprint=Footprint()) == 0
