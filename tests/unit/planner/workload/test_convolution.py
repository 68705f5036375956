from dataclasses import replace

import pytest

from planner.workload.convolution import Convolution
from planner.workload.feature_map import Activation, FeatureMap
from planner.workload.operators import MatrixProduct, MemoryPass

MAP = FeatureMap(images=2, channels=16, side=9, element_bytes=2)
DENSE = Convolution(inputs=16, outputs=32, kernel=3, stride=2)
DEPTHWISE = Convolution(inputs=16, outputs=16, kernel=5, groups=16)


def product(convolution: Convolution) -> MatrixProduct:
    found = convolution.operators("x", MAP)[0]
    assert isinstance(found, MatrixProduct)
    return found


def test_a_dense_convolution_is_a_product_of_windows_and_weights() -> None:
    op = product(DENSE)
    assert (op.rows, op.columns, op.inner, op.count) == (2 * 5 * 5, 32, 16 * 9, 1)
    assert op.forward_flops == 2 * DENSE.forward_flops(9)
    assert DENSE.parameters == 32 * 16 * 9 + 2 * 32
    assert DENSE.buffers == 2 * 32 + 1


def test_it_saves_and_moves_its_input_as_it_is_not_its_windows() -> None:
    op = product(DENSE)
    assert op.saved_bytes == MAP.size_bytes
    assert op.gradient_elements == 2 * 25 * 32 + MAP.elements


def test_groups_are_products_of_their_own() -> None:
    grouped = replace(DENSE, groups=4)
    op = product(grouped)
    assert (op.columns, op.inner, op.count) == (8, 4 * 9, 4)
    assert op.forward_flops * 4 == product(DENSE).forward_flops
    assert grouped.parameters == 32 * 4 * 9 + 2 * 32


def test_a_depthwise_convolution_is_bound_by_memory_and_still_useful() -> None:
    op = DEPTHWISE.operators("x", MAP)[0]
    assert isinstance(op, MemoryPass)
    assert op.forward_bytes == 2 * MAP.size_bytes
    assert op.forward_flops == 2 * DEPTHWISE.forward_flops(9) == 2 * 2 * 81 * 16 * 25
    assert DEPTHWISE.parameters == 16 * 25 + 2 * 16


def test_norm_and_activation_follow_where_there_are_some() -> None:
    names = [op.name for op in replace(DENSE, activation=Activation.SILU).operators("x", MAP)]
    assert names == ["x", "x_norm", "x_activation"]
    bare = replace(DENSE, batch_norm=False, bias=True)
    assert [op.name for op in bare.operators("x", MAP)] == ["x"]
    assert (bare.parameters, bare.buffers) == (32 * 16 * 9 + 32, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inputs", 0),
        ("kernel", 1001),
        ("stride", 0),
        ("groups", 3),
        ("batch_norm", 1),
        ("activation", "relu6"),
    ],
)
def test_nonsense_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"inputs|" + name):
        replace(DENSE, **{name: value})  # type: ignore[arg-type]  # what is wrong is the point
