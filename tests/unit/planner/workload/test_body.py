"""A chain's ends and its counted layers: what stages split between."""

import pytest

from planner.workload.body import body_of
from planner.workload.presets import preset_names, preset_workload


@pytest.mark.parametrize("name", preset_names())
def test_a_body_is_the_whole_chain_in_order(name: str) -> None:
    workload = preset_workload(name)
    body = body_of(workload)
    chain = [*body.first, *(layer for unit in body.units for layer in unit), *body.last]
    assert chain == [run.layer for run in workload.runs for _ in range(run.count)]


@pytest.mark.parametrize(
    ("name", "layers", "classes", "first", "last"),
    [
        ("llama-3-8b", 32, 1, ["embedding"], ["norm", "head"]),
        ("deepseek-v3", 61, 2, ["embedding"], ["mtp", "norm", "head"]),
        # The vision tower stays with the first decoder layer's stage.
        ("llava-1.5-7b", 32, 1, ["vision", "norm", *["vision"] * 24, "norm", "projector", "embedding"], None),
        # Encoder, then decoder: its first layer comes with the encoder's norm and its own embedding.
        ("t5-base", 24, 4, ["embedding"], ["norm", "head"]),
        ("vit-b-16", 12, 1, ["embedding"], ["norm", "head"]),
    ],
)
def test_what_is_counted(
    name: str, layers: int, classes: int, first: list[str], last: list[str] | None
) -> None:
    body = body_of(preset_workload(name))
    assert (body.num_layers, len(body.classes)) == (layers, classes)
    assert [layer.kind for layer in body.first] == first
    if last is not None:
        assert [layer.kind for layer in body.last] == last


def test_what_stands_between_counted_layers_goes_with_the_second() -> None:
    body = body_of(preset_workload("t5-base"))
    assert [layer.kind for layer in body.classes[body.sequence[12]]] == ["norm", "embedding", "decoder"]


def test_a_chain_without_transformer_layers_counts_what_is_no_end() -> None:
    body = body_of(preset_workload("resnet-18"))
    assert body.num_layers == 2 + 2 + 2 + 2
    assert all(len(unit) == 1 for unit in body.units)
