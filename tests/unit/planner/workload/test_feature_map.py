import pytest

from planner.workload.feature_map import Activation, FeatureMap, activation_pass, map_of, strided
from planner.workload.layers import Cut
from planner.workload.operators import Module
from planner.workload.streams import ImageStream

MAP = FeatureMap(images=2, channels=8, side=5, element_bytes=2)


@pytest.mark.parametrize(("side", "stride", "left"), [(7, 1, 7), (7, 2, 4), (8, 2, 4), (2, 3, 1)])
def test_a_stride_leaves_every_so_manieth_position_and_the_first(side: int, stride: int, left: int) -> None:
    assert strided(side, stride) == left


def test_a_map_counts_every_channel_of_every_position_of_every_image() -> None:
    assert (MAP.positions, MAP.elements, MAP.size_bytes) == (2 * 25, 2 * 25 * 8, 2 * 2 * 25 * 8)
    assert MAP.vector_bytes == 2 * 2 * 8


def test_a_layer_reads_the_maps_of_all_images_of_its_samples_whole() -> None:
    stream = ImageStream(image_size=65, patch_size=8, images=3)
    cut = Cut(micro_batch_size=4, sequence_length=1, context_parallel=2, element_bytes=4)
    read = map_of(stream, 16, cut)
    assert (read.images, read.side, read.channels, read.element_bytes) == (12, 9, 16, 4)


def test_what_was_saved_is_not_saved_again() -> None:
    written = MAP.written(made_by=Module.CONVOLUTION, channels=4, stride=2)
    assert [tensor.size_bytes for tensor in written.saved("x")] == [2 * 2 * 9 * 4]
    assert FeatureMap(images=1, channels=1, side=1, element_bytes=2, is_saved=True).saved("x") == ()


@pytest.mark.parametrize(
    ("activation", "passes", "saved"),
    [(Activation.NONE, 0, 0), (Activation.RELU, 1, 0), (Activation.SILU, 1, 1)],
)
def test_an_activation_saves_its_input_unless_its_output_says_enough(
    activation: Activation, passes: int, saved: int
) -> None:
    made = activation_pass("a", activation, MAP, module=Module.CONVOLUTION)
    assert (len(made), sum(len(one.saved) for one in made)) == (passes, saved)
