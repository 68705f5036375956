import json
from dataclasses import replace

import pytest

from planner.errors import InvalidRequest
from planner.workload.chain import layers_document, workload_from_layers
from planner.workload.ends import NormLayer
from planner.workload.layers import Cut, Layer, LayerRun, Workload
from planner.workload.operators import AttentionCore, MatrixProduct, MemoryPass, Module
from planner.workload.recomputation import WHOLE_LAYER, saved_bytes
from planner.workload.samples import has_sequence
from planner.workload.traced import (
    SampleDim,
    TracedAttention,
    TracedLayer,
    TracedPass,
    TracedProduct,
    Volume,
)

CUT = Cut(micro_batch_size=3, sequence_length=7, element_bytes=2)
PRODUCT = TracedProduct(
    name="convolution", rows=196, columns=64, inner=576, repeat=2, saved=Volume(elements=100)
)
ATTENTION = TracedAttention(
    name="attention",
    batch=2,
    query_length=16,
    key_length=32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    value_dim=8,
    causal=False,
    saved=Volume(elements=10, bytes=5),
)
NORM = TracedPass(
    name="norm",
    resembles="layer_norm",
    forward=Volume(elements=20, fixed_elements=4),
    backward=Volume(elements=30, fixed_bytes=8),
    flops=11,
)
LAYER = TracedLayer(
    operators_of_sample=(PRODUCT, ATTENTION, NORM),
    role="Block",
    parameters=36_864,
    buffers=128,
    tied_parameters=9,
    output=Volume(elements=50, bytes=1),
    saved_input=Volume(elements=40),
    other_input=Volume(elements=6),
)


def workload(*layers: Layer) -> Workload:
    runs = tuple(LayerRun(layer=layer, count=2) for layer in layers)
    return Workload(name="custom", family="custom", runs=runs)


def test_sizes_grow_with_samples_and_the_width_of_elements_but_for_what_is_fixed() -> None:
    volume = Volume(elements=10, bytes=3, fixed_elements=100, fixed_bytes=1000)
    assert volume.size_bytes(CUT) == 3 * (2 * 10 + 3) + 2 * 100 + 1000
    assert volume.size_bytes(replace(CUT, element_bytes=4)) == 3 * (4 * 10 + 3) + 4 * 100 + 1000


@pytest.mark.parametrize(
    ("grows", "sizes"),
    [
        (SampleDim.ROWS, (6, 3, 5, 7)),
        (SampleDim.COLUMNS, (2, 9, 5, 7)),
        (SampleDim.INNER, (2, 3, 15, 7)),
        (SampleDim.COUNT, (2, 3, 5, 21)),
        (SampleDim.NONE, (2, 3, 5, 7)),
    ],
)
def test_one_dimension_of_a_product_grows_with_the_samples(
    grows: SampleDim, sizes: tuple[int, int, int, int]
) -> None:
    traced = TracedProduct(name="product", rows=2, columns=3, inner=5, count=7, grows=grows)
    product = next(traced.operators(CUT))
    assert (product.rows, product.columns, product.inner, product.count) == sizes
    per_sample = 0 if grows is SampleDim.NONE else product.forward_flops / 3
    assert traced.flops_per_sample == per_sample


def test_every_operator_runs_as_often_as_it_is_repeated() -> None:
    first, second, core, norm = LAYER.operators(CUT)
    assert isinstance(first, MatrixProduct)
    assert isinstance(second, MatrixProduct)
    assert (first.rows, first.columns, first.inner) == (588, 64, 576)
    assert second == replace(first, name=second.name, saved=second.saved)
    assert isinstance(core, AttentionCore)
    assert (core.batch, core.module) == (6, Module.CORE_ATTENTION)
    assert isinstance(norm, MemoryPass)
    assert (norm.forward_bytes, norm.backward_bytes, norm.kind) == (128, 188, "layer_norm")


def test_the_steps_of_a_recurrence_are_one_product_that_repeats() -> None:
    traced = TracedProduct(name="step", rows=1, columns=8, inner=4, steps=5, saved=Volume(elements=20))
    (product,) = traced.operators(CUT)
    assert (product.rows, product.repeats, product.saved_bytes) == (3, 5, 3 * 2 * 20)
    assert traced.flops_per_sample == 5 * 2 * 8 * 4


def test_the_windows_of_a_convolution_overlap() -> None:
    (product,) = replace(PRODUCT, repeat=1, input_elements=1000).operators(CUT)
    assert product.input_elements == 3000


def test_equal_passes_are_one_that_repeats() -> None:
    (norm,) = replace(NORM, repeat=4, saved=Volume(elements=3)).operators(CUT)
    assert (norm.repeats, norm.forward_bytes, norm.saved_bytes) == (4, 128, 4 * 3 * 2 * 3)
    assert norm.forward_flops == 4 * 3 * 11


def test_a_layer_counts_the_flops_of_one_sample() -> None:
    products, core = 2 * 2 * 196 * 64 * 576, 2 * 2 * 4 * 16 * 32 * (8 + 8)
    assert LAYER.forward_flops_per_sample(1) == products + core + 11
    assert LAYER.forward_flops_per_sample(4096) == LAYER.forward_flops_per_sample(1)


def test_a_layer_keeps_what_its_operators_save_and_what_they_save_of_its_inputs() -> None:
    saved = 3 * (2 * 100 * 2) + 3 * (2 * 10 + 5)
    inputs = 3 * 2 * 40
    assert saved_bytes(LAYER.operators(CUT)) == inputs + saved


def test_a_layer_that_runs_again_keeps_all_its_inputs_and_nothing_else() -> None:
    assert saved_bytes(LAYER.operators(CUT), recompute=WHOLE_LAYER) == 3 * 2 * (40 + 6)


def test_a_layer_hands_on_its_output() -> None:
    assert LAYER.output_bytes(CUT) == 3 * (2 * 50 + 1)


def test_weights_and_samples_are_not_split() -> None:
    assert {split.axis for split in LAYER.splits} == {"tensor_parallel", "context_parallel"}
    assert all(split.allows(1) and not split.allows(2) for split in LAYER.splits)
    assert LAYER.local_parameters(replace(CUT, tensor_parallel=2)) == LAYER.parameters
    assert LAYER.tied_local_parameters(CUT) == 9


def test_a_traced_chain_is_read_back_as_it_was() -> None:
    document = json.loads(json.dumps(layers_document(workload(LAYER))))
    assert workload_from_layers(document) == workload(LAYER)
    assert workload_from_layers(document).parameters == 2 * 36_864
    assert workload_from_layers(document).buffers == 2 * 128


def entry(**changes: object) -> dict[str, object]:
    return {
        "kind": "traced",
        "operators_of_sample": [{"type": "pass", "name": "add", "resembles": "add"}],
        **changes,
    }


def product(**changes: object) -> dict[str, object]:
    whole = {"type": "product", "name": "p", "rows": 1, "columns": 1, "inner": 1, **changes}
    return entry(operators_of_sample=[whole])


@pytest.mark.parametrize(
    ("layer", "pointer"),
    [
        (entry(operators_of_sample=[]), "/operators_of_sample"),
        (entry(operators_of_sample="pass"), "/operators_of_sample"),
        (entry(operators_of_sample=[{"type": "passage"}]), "/operators_of_sample/0/type"),
        (
            entry(operators_of_sample=2 * [{"type": "pass", "name": "a", "resembles": "add"}]),
            "/operators_of_sample",
        ),
        (entry(output=7), "/output"),
        (entry(output={"elements": -1}), "/output/elements"),
        (entry(output={"element": 1}), "/output/element"),
        (entry(parameters=0.5), "/parameters"),
        (entry(role=""), "/role"),
        (product(rows=0), "/operators_of_sample/0/rows"),
        (product(grows="width"), "/operators_of_sample/0/grows"),
        (product(has_weights=1), "/operators_of_sample/0/has_weights"),
        (product(repeat=10**9), "/operators_of_sample/0/repeat"),
        (product(name=["p"]), "/operators_of_sample/0/name"),
    ],
)
def test_a_wrong_part_of_a_traced_layer_is_refused_where_it_stands(
    layer: dict[str, object], pointer: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        workload_from_layers({"layers": [layer]})
    assert caught.value.pointer == f"/model/layers/0{pointer}"


def test_what_is_left_out_has_its_default() -> None:
    read = workload_from_layers({"layers": [entry(output=None)]}).runs[0].layer
    assert read == TracedLayer(operators_of_sample=(TracedPass(name="add", resembles="add"),))
    assert read.output_bytes(CUT) == 0


def test_a_traced_sample_holds_no_sequence_that_a_job_could_set() -> None:
    assert not has_sequence(workload(LAYER))
    assert has_sequence(workload(LAYER, NormLayer(hidden=8)))
