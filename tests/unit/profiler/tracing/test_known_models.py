"""Models that the planner also knows by their configuration: traced, they come out the same."""

import pytest
from transformers import (
    BertConfig,
    BertModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from planner.workload.layers import Layer, Workload
from planner.workload.presets import preset_workload
from tests.unit.profiler.tracing.real_runs import traced


def block(workload: Workload, kind: str) -> tuple[int, Layer]:
    """Return the layers of a kind that stand in a row, and how many do."""
    (run,) = [run for run in workload.runs if run.layer.kind == kind]
    return run.count, run.layer


def test_a_residual_network_is_the_one_of_its_configuration() -> None:
    known = preset_workload("resnet-50")
    config = ResNetConfig()
    config.num_labels = 1000
    workload = traced(lambda: ResNetForImageClassification(config), "3x224x224")
    assert (workload.parameters, workload.buffers) == (known.parameters, known.buffers)
    assert workload.forward_flops_per_sample(1) == known.forward_flops_per_sample(1)


@pytest.mark.parametrize(
    ("model", "config", "shape", "role", "preset", "length"),
    [
        (ViTForImageClassification, ViTConfig(), "3x224x224", "ViTLayer", "vit-b-16", 1),
        (BertModel, BertConfig(), "512:int64", "BertLayer", "bert-base", 512),
    ],
    ids=["ViT", "BERT"],
)
def test_a_block_with_attention_is_the_one_of_its_configuration(
    model: type, config: object, shape: str, role: str, preset: str, length: int
) -> None:
    count, layer = block(traced(lambda: model(config), shape), role)
    known_count, known = block(preset_workload(preset), "encoder")
    assert (count, layer.parameters) == (known_count, known.parameters)
    assert layer.forward_flops_per_sample(1) == known.forward_flops_per_sample(length)
