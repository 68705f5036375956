"""What a layer costs that is trained in part, or runs forward alone."""

from dataclasses import replace

import pytest

from planner.cluster_presets import cluster_from_preset
from planner.cost.compute import KernelCosts
from planner.cost.layer import LayerClock, LayerCost, model_flops
from planner.cost.ledger import TALLIES
from planner.cost.tally import Cause, Tally
from planner.frameworks import FRAMEWORKS
from planner.job import BaseFormat, Precision
from planner.profile import Estimate, Provenance, builtin_profile
from planner.strategy import Recompute, RecomputeMode
from planner.workload.adapters import AdaptedLayer, Adapters
from planner.workload.frozen import FrozenLayer
from planner.workload.layers import Cut, Layer
from planner.workload.operators import CollectivePass
from planner.workload.presets import preset_workload

DECODER = preset_workload("llama-2-7b").layer("decoder")
CUT = Cut(micro_batch_size=1, sequence_length=4096)
SPLIT = replace(CUT, tensor_parallel=2)
FULL = Recompute(mode=RecomputeMode.FULL)


def a_millisecond(op: CollectivePass) -> Estimate:  # noqa: ARG001 - a CollectiveClock
    return Estimate(seconds=1e-3, provenance=Provenance.MEASURED, relative_error=0.0)


CLOCK = LayerClock(
    kernels=KernelCosts(
        cluster_from_preset("h100-sxm", 8).node_groups[0].device,
        [builtin_profile("h100-sxm/published")],
        Precision.BF16,
    ),
    collectives=a_millisecond,
    ledger=TALLIES,
    framework=FRAMEWORKS["megatron-core"],
)


def cost(layer: Layer, *, cut: Cut = CUT, recompute: Recompute | None = None) -> LayerCost[Tally]:
    return CLOCK.cost(CLOCK.passes(layer, cut), recompute or Recompute())


def test_a_frozen_layer_goes_forward_as_fast_and_back_without_weight_gradients() -> None:
    trained, frozen = cost(DECODER), cost(FrozenLayer(layer=DECODER))
    assert frozen.forward == trained.forward
    assert 0.45 * trained.backward.seconds < frozen.backward.seconds < 0.65 * trained.backward.seconds
    assert frozen.saved_bytes < trained.saved_bytes
    assert frozen.working_bytes < trained.working_bytes


@pytest.mark.parametrize("recompute", [Recompute(), FULL])
def test_before_anything_trained_there_is_no_backward(recompute: Recompute) -> None:
    first = cost(FrozenLayer(layer=DECODER, has_backward=False), recompute=recompute)
    assert first.backward.seconds == 0
    assert (first.saved_bytes, first.working_bytes) == (0, 0)
    assert first.forward == cost(DECODER).forward


def test_nothing_hides_the_reduction_of_an_input_gradient_beside_frozen_weights() -> None:
    """Both all-reduces of a millisecond ran beside weight gradients: all of them shows, or a part."""
    frozen = [cost(FrozenLayer(layer=DECODER), cut=cut).backward.causes for cut in (CUT, SPLIT)]
    shown = [causes.get(Cause.TENSOR_PARALLEL, 0.0) for causes in frozen]
    assert shown == [0.0, pytest.approx(2e-3)]
    assert cost(DECODER, cut=SPLIT).backward.causes[Cause.TENSOR_PARALLEL] < 2e-3


def test_adapters_cost_little_beside_the_layer() -> None:
    plain, adapted = (
        cost(layer)
        for layer in (
            FrozenLayer(layer=DECODER),
            AdaptedLayer(layer=DECODER, adapters=Adapters(rank=16, targets=("linear_qkv",))),
        )
    )
    for before, after in ((plain.forward, adapted.forward), (plain.backward, adapted.backward)):
        assert before.seconds < after.seconds < 1.15 * before.seconds


def test_quantized_weights_are_copied_in_every_pass() -> None:
    plain, quantized = (
        cost(FrozenLayer(layer=DECODER, base_format=base_format), recompute=FULL)
        for base_format in (None, BaseFormat.NF4)
    )
    once = quantized.forward.seconds - plain.forward.seconds
    assert once > 0
    assert quantized.backward.seconds - plain.backward.seconds == pytest.approx(2 * once)
    assert quantized.working_bytes - plain.working_bytes == 2 * 2 * 11008 * 4096


def test_gradients_that_nobody_needs_are_no_useful_work() -> None:
    def work(layer: Layer) -> float:
        return model_flops([(layer, 1)], sequence_length=4096, samples=1)

    trained, frozen = work(DECODER), work(FrozenLayer(layer=DECODER))
    forward = work(FrozenLayer(layer=DECODER, has_backward=False))
    assert trained == 3 * forward
    assert 2 * forward < frozen < trained
