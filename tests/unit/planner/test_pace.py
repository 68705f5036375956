"""What a training program's pace does to a layer, on kernels that take a second each."""

from dataclasses import replace

import pytest

from planner.cost.layer import LayerClock
from planner.cost.ledger import TALLIES
from planner.framework import FULL_RECOMPUTE, NO_RECOMPUTE
from planner.frameworks import MEGATRON_CORE
from planner.job import AttentionKind
from planner.pace import AS_MEASURED, ProgramPace
from planner.profile import Estimate, Provenance
from planner.strategy import Recompute
from planner.workload.block import BlockLayer
from planner.workload.ends import HeadLayer
from planner.workload.layers import Cut, Layer
from planner.workload.operators import (
    AttentionCore,
    CollectivePass,
    MatrixProduct,
    MemoryPass,
    Phase,
    mask_share,
)
from planner.workload.self_attention import SelfAttention
from planner.workload.traced import TracedLayer, TracedPass, Volume
from planner.workload.transformer import DecoderLayer

SECOND = Estimate(seconds=1.0, provenance=Provenance.MEASURED, relative_error=0.0)
CUT = Cut(
    micro_batch_size=1,
    sequence_length=128,
    tensor_parallel=2,
    sequence_parallel=True,
    attention=AttentionKind.UNFUSED,
)
ALONE = replace(CUT, tensor_parallel=1, sequence_parallel=False)
"""Nothing runs beside a kernel, so that each takes its whole second."""
DECODER = DecoderLayer(hidden=64, ffn=256, heads=4, kv_heads=4, head_dim=16)
HEAD = HeadLayer(vocabulary=512, hidden=64)
PASSES = (Phase.FORWARD, Phase.BACKWARD)


class SecondKernels:
    """Kernels that take a second each."""

    def matrix_product(self, op: MatrixProduct, *, phase: Phase) -> Estimate:  # noqa: ARG002
        return SECOND

    def attention(self, op: AttentionCore, *, phase: Phase) -> Estimate:  # noqa: ARG002
        return SECOND

    def memory_pass(self, op: MemoryPass, *, phase: Phase) -> Estimate:  # noqa: ARG002
        return SECOND


class MaskedKernels(SecondKernels):
    """Attention that takes a second for each share of the pairs that the mask leaves."""

    def attention(self, op: AttentionCore, *, phase: Phase) -> Estimate:  # noqa: ARG002
        return SECOND.scaled(op.mask_share)


def second_collective(op: CollectivePass) -> Estimate:  # noqa: ARG001
    return SECOND


def seconds(
    layer: Layer,
    *,
    pace: ProgramPace = AS_MEASURED,
    recompute: Recompute = NO_RECOMPUTE,
    added_launch_seconds: float = 0.0,
    crossing_seconds: float = 0.0,
    cut: Cut = CUT,
) -> float:
    clock = LayerClock(
        kernels=SecondKernels(),
        collectives=second_collective,
        ledger=TALLIES,
        framework=replace(MEGATRON_CORE, pace=pace),
        added_launch_seconds=added_launch_seconds,
        crossing_seconds=crossing_seconds,
    )
    cost = clock.cost(clock.passes(layer, cut), recompute)
    return cost.forward.seconds + cost.backward.seconds


@pytest.mark.parametrize("layer", [DECODER, HEAD])
@pytest.mark.parametrize("recompute", [NO_RECOMPUTE, FULL_RECOMPUTE])
@pytest.mark.parametrize(
    "pace",
    [ProgramPace(products=1.5), ProgramPace(tensor_parallel=1.5)],
)
def test_a_slower_program_takes_longer(layer: Layer, recompute: Recompute, pace: ProgramPace) -> None:
    assert seconds(layer, pace=pace, recompute=recompute) > seconds(layer, recompute=recompute)


def test_the_pace_of_unfused_attention_is_that_of_its_passes_alone() -> None:
    slow = ProgramPace(unfused_attention=2.0)
    assert seconds(DECODER, pace=slow) > seconds(DECODER)
    assert seconds(HEAD, pace=slow) == seconds(HEAD)


def test_the_loss_is_eager_already() -> None:
    eager = ProgramPace(memory_passes=3.0)
    assert seconds(HEAD, pace=eager) == seconds(HEAD)
    assert seconds(DECODER, pace=eager) > seconds(DECODER)


def test_a_traced_module_is_eager_already() -> None:
    norm = TracedPass(name="norm", resembles="layer_norm", forward=Volume(bytes=8), backward=Volume(bytes=8))
    traced = TracedLayer(operators_of_sample=(norm,))
    assert seconds(traced, pace=ProgramPace(memory_passes=3.0)) == seconds(traced)


def test_a_slow_host_is_hidden_behind_kernels_unless_every_launch_waits() -> None:
    kernels = seconds(DECODER, cut=ALONE)
    assert seconds(DECODER, pace=ProgramPace(launch_seconds=0.5), cut=ALONE) == kernels
    waiting = ProgramPace(launch_seconds=0.5, serial_host_fraction=1.0)
    assert seconds(DECODER, pace=waiting, cut=ALONE) == pytest.approx(1.5 * kernels)


def test_launches_that_take_longer_on_a_mesh_are_a_floor() -> None:
    kernels = seconds(DECODER, cut=ALONE)
    assert seconds(DECODER, cut=ALONE, added_launch_seconds=2.0) == pytest.approx(2 * kernels)


def test_heads_of_an_odd_width_are_slow_in_an_unfused_core_alone() -> None:
    slow = ProgramPace(misaligned_attention=10.0)
    odd = replace(DECODER, hidden=4 * 18, head_dim=18)
    assert seconds(odd, pace=slow) > seconds(odd)
    assert seconds(DECODER, pace=slow) == seconds(DECODER)
    fused = replace(CUT, attention=AttentionKind.FLASH)
    assert seconds(odd, pace=slow, cut=fused) == seconds(odd, cut=fused)


def test_a_learnt_sink_slows_a_fused_core_alone() -> None:
    slow, fused = ProgramPace(sink_attention=9.0), replace(ALONE, attention=AttentionKind.FLASH)
    attention = SelfAttention(hidden=64, heads=4, kv_heads=4, head_dim=16)
    sinking, plain = (BlockLayer(branches=(replace(attention, sinks=sinks),)) for sinks in (True, False))
    cores_in_both_passes = 2
    assert seconds(sinking, pace=slow, cut=fused) == seconds(plain, cut=fused) + 8 * cores_in_both_passes
    assert seconds(plain, pace=slow, cut=fused) == seconds(plain, cut=fused)


def test_masked_blocks_are_computed_where_fused_attention_skips_none_beside_sinks() -> None:
    attention = SelfAttention(hidden=64, heads=4, kv_heads=4, head_dim=16, window=8, sinks=True)
    layer, fused = BlockLayer(branches=(attention,)), replace(ALONE, attention=AttentionKind.FLASH)
    skipping, computing = (
        LayerClock(
            kernels=MaskedKernels(),
            collectives=second_collective,
            ledger=TALLIES,
            framework=replace(MEGATRON_CORE, pace=AS_MEASURED, skips_beside_sinks=skips),
        )
        .passes(layer, fused)
        .forward.seconds
        for skips in (True, False)
    )
    assert computing - skipping == pytest.approx(1.0 - mask_share(128, causal=True, window=8))


def test_collectives_between_nodes_wait_beside_what_the_host_takes() -> None:
    here, across = (seconds(DECODER, crossing_seconds=wait) for wait in (0.0, 0.25))
    collectives = [
        op
        for op in DECODER.operators(CUT)
        if isinstance(op, CollectivePass) and op.axis == "tensor_parallel" and op.phase in PASSES
    ]
    assert across - here == pytest.approx(0.25 * sum(op.count for op in collectives))
