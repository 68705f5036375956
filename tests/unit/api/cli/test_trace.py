"""A torch module traced, shown, and planned for."""

from pathlib import Path

import pytest

from tests.unit.api.cli.commands import Command

MIXER = ("trace", "profiler.examples.models:mixer", "--input", "3x64x64")
JOB = ("--cluster", "h100-sxm:8", "--global-batch", "1024", "--framework", "pytorch")


@pytest.fixture
def chain(meshplan: Command, tmp_path: Path) -> Path:
    """The chain of a model that is no transformer."""
    path = tmp_path / "chain.json"
    assert meshplan(*MIXER, "--output", str(path)).code == 0
    return path


def test_the_layers_of_a_module_are_shown(meshplan: Command, tmp_path: Path) -> None:
    ended = meshplan(*MIXER, "-o", str(tmp_path / "chain.json"))
    assert ended.code == 0
    first, *rows, _ = ended.output.splitlines()
    assert first == "566,698 parameters, 0 buffers; per sample:"
    assert [row.split()[:3] for row in rows[1:]] == [
        ["Conv2d", "1", "18,528"],
        ["MixerBlock", "6", "91,168"],
        ["Linear", "1", "1,162"],
    ]
    assert "meshplan plan --model" in ended.output


def test_scripts_get_the_chain_itself(meshplan: Command) -> None:
    layers = meshplan(*MIXER, "--json").document["layers"]
    assert [(layer["kind"], layer["role"], layer["count"]) for layer in layers] == [
        ("traced", "Conv2d", 1),
        ("traced", "MixerBlock", 6),
        ("traced", "Linear", 1),
    ]


def test_a_traced_module_is_shown_planned_for_and_evaluated(meshplan: Command, chain: Path) -> None:
    shown = meshplan("models", "show", str(chain), "--json").document
    assert shown["parameters"] == 566_698
    assert [layer["forward_flops_per_sample"] for layer in shown["layers"]] == [2_359_296, 12_582_912, 1_920]

    planned = meshplan("plan", "--model", str(chain), *JOB, "--json")
    assert planned.code == 0
    assert planned.document["status"] == "optimal"
    plan = ("--plan", "data_parallel=4", "--plan", "pipeline_parallel=2", "--plan", "micro_batch_size=32")
    evaluated = meshplan("evaluate", "--model", str(chain), *JOB, *plan, "--json")
    assert evaluated.code == 0
    best, other = (ended.document["prediction"]["step_time_seconds"] for ended in (planned, evaluated))
    assert 0 < best <= other

    split = meshplan("evaluate", "--model", str(chain), *JOB, "--plan", "tensor_parallel=2")
    assert split.code == 2
    assert "tensor_parallel" in split.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("profiler.examples.models:blender", "--input", "3"), "has no blender"),
        (("profiler.examples.models:tagger", "--input-tokens", "12", "--input", "3"), "cannot be run"),
    ],
)
def test_what_cannot_be_traced_is_bad_input(
    meshplan: Command, arguments: tuple[str, ...], message: str
) -> None:
    ended = meshplan("trace", *arguments)
    assert ended.code == 2
    assert message in ended.errors
