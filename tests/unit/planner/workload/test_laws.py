"""Laws that every layer of every family obeys, however it is cut."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.job import AttentionKind
from planner.workload.block import BlockLayer
from planner.workload.classifier import ClassifierLayer
from planner.workload.convolution import Convolution
from planner.workload.convolutional import ConvolutionalLayer
from planner.workload.huggingface import FAMILIES, workload_from_config
from planner.workload.image_pools import WindowPool
from planner.workload.layers import Cut, Layer
from planner.workload.lstm import LstmLayer
from planner.workload.mlp import Mlp
from planner.workload.operators import AttentionCore, CollectivePass, MatrixProduct, MemoryPass, Phase
from planner.workload.presets import preset_names, preset_workload
from planner.workload.projector import ProjectorLayer
from planner.workload.recomputation import WHOLE_LAYER, recomputed_operators, saved_bytes
from planner.workload.retention import Retention
from planner.workload.streams import VECTORS, ImageStream
from planner.workload.tables import InteractionLayer, TablesLayer
from planner.workload.traced import SampleDim, TracedLayer, TracedPass, TracedProduct, Volume

CUT = Cut(micro_batch_size=2, sequence_length=1024)
REPEATED = {"decoder", "encoder", "interaction", "lstm", "vision"}


def layers_of_families() -> Iterator[tuple[str, Layer]]:
    """Yield one of every layer that some family has, but for its numbers; a preset's where there is one."""
    by_family = {preset_workload(name).family: preset_workload(name) for name in preset_names()}
    seen: set[str] = set()
    for family in sorted(FAMILIES):
        workload = by_family.get(family) or workload_from_config({"model_type": family})
        for run in workload.runs:
            form = re.sub(r"[0-9.]+", "0", repr(run.layer))
            if form not in seen:
                seen.add(form)
                yield family, run.layer


def splits_evenly(layer: Layer, cut: Cut) -> bool:
    """Tell whether every degree divides what it has to."""
    return all(split.allows(getattr(cut, split.axis)) for split in layer.splits)


TRACED = TracedLayer(
    operators_of_sample=(
        TracedProduct(name="product", rows=196, columns=64, inner=576, repeat=2, saved=Volume(elements=9)),
        TracedProduct(name="step", rows=1, columns=8, inner=8, steps=3, grows=SampleDim.COLUMNS),
        TracedPass(
            name="norm", resembles="layer_norm", forward=Volume(bytes=8), backward=Volume(fixed_bytes=8)
        ),
    ),
    parameters=600,
    saved_input=Volume(elements=7),
)
OTHERS: dict[str, Layer] = {
    "traced": TRACED,
    "lstm": LstmLayer(inputs=256, hidden=512, bidirectional=True, dropout=0.1),
    "tables": TablesLayer(table_rows=(10**6, 3, 1000), width=128, lookups=2),
    "interaction": InteractionLayer(vectors=4, width=128),
    "vectors": ProjectorLayer(widths=(13, 512, 128), bias=True, activates_output=True, stream=VECTORS),
    "decision": ClassifierLayer(hidden=128, classes=1, bias=True, stream=VECTORS),
    "many-classes": ClassifierLayer(hidden=512, classes=10**7, bias=True, pooler=True, sharded=True),
    "many-labels": ClassifierLayer(hidden=512, classes=10**6, per_token=True, sharded=True),
    "retention": BlockLayer(
        branches=(
            Retention(hidden=512, heads=8, key_dim=64, value_dim=128, chunk=64),
            Mlp(hidden=512, ffn=1024, gated=False),
        )
    ),
    "grouped-convolution": ConvolutionalLayer(
        parts=(
            Convolution(inputs=64, outputs=128, kernel=3, stride=2, groups=4, bias=True, batch_norm=False),
            WindowPool(channels=128, kernel=3, stride=2, average=True),
        ),
        stream=ImageStream(image_size=63, patch_size=2, images=3),
    ),
}
"""Layers that no family has."""
LAYERS = [
    *(
        pytest.param(layer, id=f"{family}-{place}-{layer.kind}")
        for place, (family, layer) in enumerate(layers_of_families())
    ),
    *(pytest.param(layer, id=name) for name, layer in OTHERS.items()),
]
CUTS = st.builds(
    Cut,
    micro_batch_size=st.integers(1, 3),
    sequence_length=st.sampled_from([512, 1024]),
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    sequence_parallel=st.booleans(),
    context_parallel=st.sampled_from([1, 2]),
    expert_parallel=st.sampled_from([1, 2, 8]),
    expert_tensor_parallel=st.sampled_from([1, 2]),
    attention=st.sampled_from(AttentionKind),
)
few = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@pytest.mark.parametrize("layer", LAYERS)
@few
@given(cut=CUTS)
def test_operators_have_names_of_their_own_and_partners_among_them(layer: Layer, cut: Cut) -> None:
    operators = layer.operators(cut)
    names = [operator.name for operator in operators]
    assert len(names) == len(set(names))
    assert {op.partner for op in operators if isinstance(op, CollectivePass)} <= {None, *names}


@pytest.mark.parametrize("layer", LAYERS)
@few
@given(cut=CUTS)
def test_everything_that_runs_has_a_size(layer: Layer, cut: Cut) -> None:
    assume(splits_evenly(layer, cut))
    for operator in layer.operators(cut):
        match operator:
            case MatrixProduct():
                assert min(operator.rows, operator.columns, operator.inner, operator.count) > 0
            case AttentionCore():
                assert min(operator.batch, operator.query_length, operator.key_length, operator.heads) > 0
            case MemoryPass():
                assert min(operator.forward_bytes, operator.backward_bytes) > 0
            case CollectivePass():
                assert operator.payload_bytes > 0
                degree = getattr(cut, operator.axis)
                assert degree > 1


@pytest.mark.parametrize("layer", LAYERS)
@few
@given(cut=CUTS)
def test_devices_together_hold_all_parameters(layer: Layer, cut: Cut) -> None:
    assume(splits_evenly(layer, cut))
    held = layer.local_parameters(cut) - layer.local_expert_parameters(cut)
    experts = layer.local_expert_parameters(cut) * cut.expert_parallel * cut.expert_tensor_parallel
    assert held * cut.tensor_parallel + experts >= layer.parameters
    whole = Cut(micro_batch_size=1, sequence_length=1024)
    assert layer.local_parameters(whole) == layer.parameters


@pytest.mark.parametrize("layer", LAYERS)
@few
@given(cut=CUTS)
def test_devices_together_do_all_that_is_useful(layer: Layer, cut: Cut) -> None:
    assume(splits_evenly(layer, cut))
    kernels = [op for op in layer.operators(cut) if not isinstance(op, CollectivePass)]
    done = sum(op.forward_flops for op in kernels) * cut.tensor_parallel * cut.context_parallel
    useful = cut.micro_batch_size * layer.forward_flops_per_sample(cut.sequence_length)
    # Mamba's scan and a pool's one query multiply inside passes: 2 % of the useful at most.
    assert done >= 0.98 * useful


@pytest.mark.parametrize("layer", LAYERS)
@few
@given(cut=CUTS)
def test_recomputing_a_repeated_layer_leaves_its_input_alone(layer: Layer, cut: Cut) -> None:
    operators = layer.operators(cut)
    left = saved_bytes(operators, recompute=WHOLE_LAYER)
    if layer.kind in REPEATED:
        inputs = [
            tensor
            for op in operators
            if not isinstance(op, CollectivePass)
            for tensor in op.saved
            if tensor.made_by is None
        ]
        assert len(inputs) == 1
        assert left == inputs[0].size_bytes
    again = recomputed_operators(operators, recompute=WHOLE_LAYER)
    assert all(op.phase is Phase.FORWARD for op in again if isinstance(op, CollectivePass))


@pytest.mark.parametrize("layer", LAYERS)
def test_more_samples_never_save_less(layer: Layer) -> None:
    one, two = (saved_bytes(layer.operators(replace(CUT, micro_batch_size=size))) for size in (1, 2))
    assert one <= two


@pytest.mark.parametrize("layer", LAYERS)
def test_fewer_parameters_are_idle_than_there_are(layer: Layer) -> None:
    assert 0 <= layer.idle_parameters < max(layer.parameters, 1)
    assert layer.local_expert_parameters(CUT) >= layer.idle_parameters
