import pytest

from planner.workload.feature_map import FeatureMap
from planner.workload.operators import CollectivePass, MatrixProduct
from planner.workload.squeeze_excite import SqueezeExcite

MAP = FeatureMap(images=2, channels=16, side=9, element_bytes=2)
SQUEEZE = SqueezeExcite(channels=16, width=4)


def test_two_maps_with_biases_work_on_the_means_of_channels() -> None:
    products = [op for op in SQUEEZE.operators("x", MAP) if isinstance(op, MatrixProduct)]
    assert [(op.rows, op.columns, op.inner) for op in products] == [(2, 4, 16), (2, 16, 4)]
    assert sum(op.forward_flops for op in products) == 2 * SQUEEZE.forward_flops(9)
    assert SQUEEZE.parameters == 16 * 4 + 4 + 4 * 16 + 16


def test_the_map_keeps_its_shape_and_is_saved_once() -> None:
    assert SQUEEZE.output(MAP).size_bytes == MAP.size_bytes
    operators = SQUEEZE.operators("x", MAP)
    saved = [tensor for op in operators if not isinstance(op, CollectivePass) for tensor in op.saved]
    assert [tensor.name for tensor in saved if tensor.size_bytes == MAP.size_bytes] == ["x_scale_input"]


@pytest.mark.parametrize(("channels", "width"), [(0, 4), (16, 0)])
def test_nonsense_is_refused(channels: int, width: int) -> None:
    with pytest.raises(ValueError, match="must be from 1"):
        SqueezeExcite(channels=channels, width=width)
