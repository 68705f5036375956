"""A layer of the policy beside the same layer of the reference, over a pair of sequences."""

from dataclasses import replace

import pytest

from planner.workload.frozen import FrozenLayer
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass
from planner.workload.preference import PreferenceLayer
from planner.workload.presets import preset_workload
from planner.workload.recomputation import saved_bytes

MIXTRAL = preset_workload("mixtral-8x7b").layer("decoder")
DECODER = preset_workload("llama-3-8b").layer("decoder")
CUT = Cut(micro_batch_size=1, sequence_length=512)
PAIRS = replace(CUT, micro_batch_size=2)


def beside_reference(*, shares_weights: bool = False) -> PreferenceLayer:
    reference = FrozenLayer(layer=DECODER, has_backward=False)
    return PreferenceLayer(layer=DECODER, reference=reference, shares_weights=shares_weights)


def test_the_policy_saves_what_two_sequences_save_and_the_reference_nothing() -> None:
    assert saved_bytes(beside_reference().operators(CUT)) == saved_bytes(DECODER.operators(PAIRS))


def test_both_models_run_both_sequences() -> None:
    forward = DECODER.forward_flops_per_sample(512)
    layer = beside_reference()
    assert layer.forward_flops_per_sample(512) == 2 * 2 * forward
    assert layer.step_flops_per_sample(512) == 2 * (3 + 1) * forward


def test_a_reference_that_shares_weights_holds_none() -> None:
    shared, apart = beside_reference(shares_weights=True), beside_reference()
    assert shared.parameters == DECODER.parameters
    assert apart.parameters == 2 * DECODER.parameters
    for layer in (shared, apart):
        assert layer.local_parameters(CUT) == layer.holdings(CUT).parameters == layer.parameters


def test_experts_of_both_models_are_counted() -> None:
    layer = PreferenceLayer(layer=MIXTRAL, reference=FrozenLayer(layer=MIXTRAL, has_backward=False))
    experts = layer.holdings(CUT).experts
    assert experts.parameters == layer.local_expert_parameters(CUT)
    assert experts.trained.parameters == experts.frozen == MIXTRAL.local_expert_parameters(CUT)


def test_names_tell_the_models_apart() -> None:
    cut = replace(CUT, tensor_parallel=2, context_parallel=2)
    operators = beside_reference().operators(cut)
    names = [op.name for op in operators]
    assert len(set(names)) == len(names)
    for op in operators:
        if isinstance(op, CollectivePass) and op.partner:
            assert op.name.startswith("reference_") == op.partner.startswith("reference_")


def test_the_reference_sends_forward_alone() -> None:
    """Two activations there, one back: three halves of the policy's either way."""
    assert beside_reference().output_bytes(CUT) == pytest.approx(1.5 * DECODER.output_bytes(PAIRS))
