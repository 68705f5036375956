"""What can be named, on the command line."""

import json
from pathlib import Path

import pytest

from tests.unit.api.cli.commands import Command
from tests.unit.api.machines import machine_profile


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("models", "llama-3-70b"),
        ("clusters", "h100-sxm"),
        ("devices", "H100-SXM5-80GB"),
        ("profiles", "h100-sxm/published"),
        ("frameworks", "megatron-core"),
    ],
)
def test_everything_that_is_listed_can_be_shown(meshplan: Command, kind: str, name: str) -> None:
    assert name in meshplan(kind, "list").output
    assert name in [entry["name"] for entry in meshplan(kind, "list", "--json").document]
    shown = meshplan(kind, "show", name)
    assert shown.code == 0
    assert name in shown.output
    assert meshplan(kind, "show", name, "--json").document


@pytest.mark.parametrize(
    ("kind", "name", "nearest"),
    [
        ("models", "lama-3-70b", "llama-3-70b"),
        ("clusters", "h100:8", "h100-sxm"),
        ("devices", "A100", "A100-SXM4-80GB"),
        ("profiles", "h100-sxm", "h100-sxm/published"),
        ("frameworks", "megatron", "megatron-core"),
    ],
)
def test_a_name_that_is_not_there_gets_the_nearest(
    meshplan: Command, kind: str, name: str, nearest: str
) -> None:
    ended = meshplan(kind, "show", name)
    assert ended.code == 2
    assert nearest in ended.errors
    assert nearest in meshplan(kind, "show", name, "--json").document["nearest_legal"]


def test_a_model_is_shown_as_scripts_rely_on(meshplan: Command) -> None:
    document = meshplan("models", "show", "llama-3-8b", "--json", "--sequence", "4096").document
    assert document.keys() == {
        "name",
        "family",
        "parameters",
        "active_parameters",
        "layers",
        "not_understood",
    }
    assert document["parameters"] == 8_030_261_248
    assert document["layers"][0].keys() == {
        "kind",
        "count",
        "parameters",
        "forward_flops_per_sample",
        "forward_flops_per_token",
    }


def test_a_configuration_is_shown_with_what_was_not_understood(meshplan: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "gpt2", "n_layer": 2, "flux_capacitor": 1}))
    shown = meshplan("models", "show", str(config))
    assert shown.code == 0
    assert "flux_capacitor" in shown.output
    config.write_text("[]")
    assert meshplan("models", "show", str(config)).code == 2


def test_a_profile_is_imported_listed_and_deleted(meshplan: Command, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(machine_profile()))
    imported = meshplan("profiles", "import", str(file))
    assert imported.code == 0
    assert "cpu-small/measured stored" in imported.output
    assert "was there already" in meshplan("profiles", "import", str(file)).output
    assert "local" in meshplan("clusters", "list").output
    assert "cpu-small" in meshplan("clusters", "show", "local:2").output
    assert meshplan("profiles", "delete", "cpu-small/measured").code == 0
    assert meshplan("profiles", "delete", "cpu-small/measured").code == 2
    assert "local" not in meshplan("clusters", "list").output


def test_links_are_shown_with_their_shape_and_what_joins_two_kinds_of_nodes(meshplan: Command) -> None:
    assert "torus 4x4x4" in meshplan("clusters", "show", "tpu-v4:64").output
    assert "1.75 : 1" in meshplan("clusters", "show", "mi250x-frontier:2048").output
    pair = meshplan("clusters", "show", "a100-h100-sxm:32").output
    assert "node group h100-sxm: 2 nodes of 8 H100-SXM5-80GB" in pair
    assert "Between a100-sxm-80gb and h100-sxm: 25" in pair
    assert "1 node of 8" in meshplan("clusters", "show", "a100-h100-sxm").output


def test_bad_rows_of_an_import_are_told(meshplan: Command) -> None:
    good = machine_profile()["kernels"][0]
    document = machine_profile(kernels=[good, {**good, "seconds": 0}])
    ended = meshplan("profiles", "import", "-", given=json.dumps(document))
    assert ended.code == 0
    assert "refused /kernels/1" in ended.errors


def test_a_profile_without_a_good_row_is_bad_input(meshplan: Command) -> None:
    document = machine_profile(kernels=[], collectives=[{}])
    ended = meshplan("profiles", "import", "-", "--json", given=json.dumps(document))
    assert ended.code == 2
    assert ended.document["pointer"] == "/collectives/0"


def test_a_built_in_profile_stays(meshplan: Command) -> None:
    ended = meshplan("profiles", "delete", "h100-sxm/published")
    assert ended.code == 2
    assert "built in" in ended.errors


def test_a_framework_is_shown_with_its_rules_in_a_release(meshplan: Command) -> None:
    def otherwise(*release: str) -> dict[str, str]:
        rules = meshplan("frameworks", "show", "megatron-core", "--json", *release).document["rules"]
        return {rule["name"]: rule["otherwise"] for rule in rules}

    assert otherwise()["even-layers"] == "refused"
    assert otherwise("--release", "0.12")["even-layers"] == "accepted, and wrong"
    assert "layers-per-chunk" in otherwise("--release", "0.12").keys() - otherwise().keys()
    table = meshplan("frameworks", "show", "megatron-core").output
    assert "pipeline_parallel x virtual_stages divides the layers" in table
    assert ["layers", "per", "stage", "chunk"] in [line.split() for line in table.splitlines()]
    unknown = meshplan("frameworks", "show", "megatron-core", "--release", "0.5")
    assert unknown.code == 2
    assert "0.9" in unknown.errors
