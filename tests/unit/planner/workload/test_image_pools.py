import pytest

from planner.workload.feature_map import FeatureMap
from planner.workload.image_pools import PoolLayer, WindowPool
from planner.workload.layers import Cut
from planner.workload.operators import MemoryPass
from planner.workload.streams import ImageStream

MAP = FeatureMap(images=2, channels=16, side=9, element_bytes=2)
LAYER = PoolLayer(channels=16, stream=ImageStream(image_size=56, patch_size=8, images=2))
CUT = Cut(micro_batch_size=3, sequence_length=1)


@pytest.mark.parametrize(("average", "saved"), [(False, 2 * 2 * 81 * 16 + 8 * 2 * 25 * 16), (True, 0)])
def test_maxima_save_the_map_and_where_they_stood(average: bool, saved: float) -> None:  # noqa: FBT001
    (op,) = WindowPool(channels=16, kernel=3, stride=2, average=average).operators("x", MAP)
    assert isinstance(op, MemoryPass)
    assert op.saved_bytes == saved


def test_a_pool_over_windows_makes_a_map_smaller() -> None:
    assert WindowPool(channels=16, kernel=3, stride=2).output(MAP).side == 5


def test_a_pool_over_the_map_hands_on_one_vector_per_image() -> None:
    assert LAYER.output_bytes(CUT) == 2 * 6 * 16
    (op,) = LAYER.operators(CUT)
    assert isinstance(op, MemoryPass)
    assert op.forward_bytes == 2 * 6 * 16 * (49 + 1)


def test_without_images_there_is_nothing_to_pool() -> None:
    empty = PoolLayer(channels=16, stream=ImageStream(image_size=56, patch_size=8, images=0))
    assert empty.operators(CUT) == ()


@pytest.mark.parametrize("value", [0, 10**6])
def test_nonsense_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="kernel"):
        WindowPool(channels=16, kernel=value, stride=2)
