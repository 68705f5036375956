"""Networks of images by their config.json."""

from collections.abc import Mapping

import pytest

from planner.workload.classifier import ClassifierLayer
from planner.workload.convolutional import ConvolutionalLayer
from planner.workload.feature_map import Activation
from planner.workload.huggingface import workload_from_config
from tests.unit.planner.workload.families.configs import refusal

RESNET: Mapping[str, object] = {"model_type": "resnet"}
EFFICIENTNET: Mapping[str, object] = {"model_type": "efficientnet"}


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({**RESNET, "hidden_sizes": []}, "hidden_sizes"),
        ({**RESNET, "hidden_sizes": [64, 0, 64, 64]}, "hidden_sizes"),
        ({**RESNET, "hidden_sizes": [64, 2, 64, 64]}, "hidden_sizes"),
        ({**RESNET, "hidden_sizes": 64}, "hidden_sizes"),
        ({**RESNET, "depths": [1, 2]}, "depths"),
        ({**RESNET, "depths": [1, 2, 10**6, 3]}, "depths"),
        ({**RESNET, "layer_type": "bottlenek"}, "layer_type"),
        ({**RESNET, "hidden_act": "wiggle"}, "hidden_act"),
        ({**RESNET, "embedding_size": -1}, "embedding_size"),
        ({**RESNET, "downsample_in_first_stage": "no"}, "downsample_in_first_stage"),
        ({**EFFICIENTNET, "width_coefficient": 0}, "width_coefficient"),
        ({**EFFICIENTNET, "depth_coefficient": "1"}, "depth_coefficient"),
        ({**EFFICIENTNET, "depth_coefficient": 1e9}, "depth_coefficient"),
        ({**EFFICIENTNET, "image_size": [600, 601]}, "image_size"),
        ({**EFFICIENTNET, "image_size": 0}, "image_size"),
        ({**EFFICIENTNET, "strides": [1, 2]}, "strides"),
        ({**EFFICIENTNET, "kernel_sizes": [3] * 6 + [0]}, "kernel_sizes"),
        ({**EFFICIENTNET, "in_channels": [32, 16, 24, 40, 80, 112, 500]}, "in_channels"),
        ({**EFFICIENTNET, "num_block_repeats": [1, 2, 2, 3, 3, 4, 10**5]}, "num_block_repeats"),
        ({**EFFICIENTNET, "hidden_dim": 1280}, "hidden_dim"),
        ({**EFFICIENTNET, "pooling_type": "median"}, "pooling_type"),
        ({**EFFICIENTNET, "squeeze_expansion_ratio": 2}, "squeeze_expansion_ratio"),
        ({**EFFICIENTNET, "drop_connect_rate": 1}, "drop_connect_rate"),
    ],
)
def test_an_absurd_network_of_images_is_refused_at_its_key(config: Mapping[str, object], key: str) -> None:
    assert refusal(config).pointer == f"/model/huggingface/{key}"


@pytest.mark.parametrize(
    ("activation", "kept"),
    [("linear", Activation.NONE), ("relu", Activation.RELU), ("hardswish", Activation.SILU)],
)
def test_an_activation_of_images_is_known_by_what_it_keeps(activation: str, kept: Activation) -> None:
    block = workload_from_config({**RESNET, "hidden_act": activation}).layer("encoder")
    assert isinstance(block, ConvolutionalLayer)
    assert block.activation is kept


def test_strides_beyond_any_image_are_refused() -> None:
    assert refusal({**EFFICIENTNET, "strides": [1000] * 7}).pointer == "/model/huggingface"


@pytest.mark.parametrize("family", ["resnet", "efficientnet"])
def test_a_key_of_a_network_of_images_that_nobody_knows_is_listed(family: str) -> None:
    workload = workload_from_config({"model_type": family, "hiden_sizes": [1], "num_labels": 10**5})
    assert workload.not_understood == ("hiden_sizes",)
    head = workload.layer("head")
    assert isinstance(head, ClassifierLayer)
    assert head.sharded
