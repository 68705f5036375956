from dataclasses import replace

import pytest

from planner.workload.classifier import ClassifierLayer
from planner.workload.layers import Cut
from planner.workload.operators import CollectivePass, MatrixProduct
from planner.workload.recomputation import saved_bytes

SAMPLES = ClassifierLayer(hidden=64, classes=10)
CUT = Cut(micro_batch_size=2, sequence_length=32, tensor_parallel=4, sequence_parallel=True)


@pytest.mark.parametrize(
    ("layer", "parameters"),
    [
        (SAMPLES, 640),
        (replace(SAMPLES, bias=True), 650),
        (replace(SAMPLES, pooler=True), 640 + 65 * 64),
        (ClassifierLayer(hidden=64, classes=0, pooler=True), 65 * 64),
    ],
)
def test_a_classifier_has_its_maps(layer: ClassifierLayer, parameters: int) -> None:
    assert layer.parameters == layer.local_parameters(CUT) == parameters


@pytest.mark.parametrize(("per_token", "rows"), [(False, 2), (True, 2 * 32 // 4)])
def test_it_sorts_samples_or_all_tokens(per_token: bool, rows: int) -> None:  # noqa: FBT001
    product, loss = replace(SAMPLES, per_token=per_token).operators(CUT)
    assert isinstance(product, MatrixProduct)
    assert (product.rows, product.columns, product.inner) == (rows, 10, 64)
    assert loss.name == "loss"


def test_a_pooler_comes_first_and_may_stand_alone() -> None:
    names = [op.name for op in replace(SAMPLES, pooler=True).operators(CUT)]
    assert names == ["pooler", "pooler_activation", "classes", "loss"]
    alone = ClassifierLayer(hidden=64, classes=0, pooler=True)
    assert [op.name for op in alone.operators(CUT)] == names[:2]


def test_inputs_and_the_softmax_are_saved() -> None:
    assert saved_bytes(SAMPLES.operators(CUT)) == 2 * 2 * 64 + 4 * 2 * 10


def test_the_loss_ends_the_chain() -> None:
    assert SAMPLES.output_bytes(CUT) == 0


def test_flops_are_two_per_vector_and_weight() -> None:
    assert SAMPLES.forward_flops_per_sample(32) == 2 * 640
    assert replace(SAMPLES, per_token=True).forward_flops_per_sample(32) == 32 * 2 * 640


MANY = ClassifierLayer(hidden=64, classes=10**7, bias=True, sharded=True)


def test_ten_million_classes_are_split_over_tensor_parallel() -> None:
    assert MANY.parameters == 10**7 * 65
    assert MANY.local_parameters(CUT) == 10**7 * 65 // 4
    product, loss = (op for op in MANY.operators(CUT) if not isinstance(op, CollectivePass))
    assert isinstance(product, MatrixProduct)
    assert (product.rows, product.columns) == (2, 10**7 // 4)
    assert loss.saved_bytes == 4 * 2 * 10**7 // 4


def test_split_classes_agree_on_the_loss_and_on_the_gradient_of_their_input() -> None:
    collectives = [op for op in MANY.operators(CUT) if isinstance(op, CollectivePass)]
    assert [op.name for op in collectives] == [
        "classes_input_gradient_reduce",
        "loss_maximum",
        "loss_target",
        "loss_sum",
    ]
    assert collectives[0].payload_bytes == 2 * 2 * 64
    assert {op.payload_bytes for op in collectives[1:]} == {4 * 2}


def test_split_classes_of_tokens_gather_the_shards_of_the_sequence() -> None:
    operators = replace(MANY, per_token=True).operators(CUT)
    (product,) = (op for op in operators if isinstance(op, MatrixProduct))
    assert product.rows == 2 * 32
    assert product.saved_bytes == 2 * 2 * 32 // 4 * 64
    assert operators[0].name == "classes_input_gather"


@pytest.mark.parametrize(("classes", "largest"), [(10, 3), (12, 3), (1, 1)])
def test_an_uneven_split_leaves_the_largest_shard(classes: int, largest: int) -> None:
    layer = ClassifierLayer(hidden=64, classes=classes, sharded=True)
    assert layer.local_parameters(CUT) == 64 * largest


@pytest.mark.parametrize(
    ("name", "value"), [("classes", -1), ("classes", 10**10), ("hidden", 0), ("pooler", "yes")]
)
def test_nonsense_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        replace(SAMPLES, **{name: value})  # type: ignore[arg-type]  # what is wrong is the point
