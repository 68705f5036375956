"""``meshplan profiles check``."""

import json

from tests.unit.api.cli.commands import Command
from tests.unit.api.machines import machine_profile


def test_a_profile_is_checked_row_by_row_and_without_its_device(meshplan: Command) -> None:
    (check,) = meshplan("profiles", "check", "l4/published", "--json").document
    assert (check["name"], check["device"]) == ("l4/published", "L4-24GB")
    for part in ("rows_left_out", "device_left_out"):
        (products,) = [one for one in check[part] if one["kind"] == "matrix_product fp32 forward"]
        assert products["rows"] > 100
        assert 0 < products["median_abs_error"] <= products["p90_abs_error"]


def test_errors_are_shown_as_percentages(meshplan: Command) -> None:
    shown = meshplan("profiles", "check", "rtx-3090/published", "hosts/published")
    assert shown.code == 0
    assert "rtx-3090/published" in shown.output
    assert "median error" in shown.output
    assert "%" in shown.output


def test_an_unknown_profile_is_refused_with_the_nearest_names(meshplan: Command) -> None:
    refused = meshplan("profiles", "check", "l40")
    assert refused.code == 2
    assert "l40/published" in refused.errors or "l40s/published" in refused.errors


def test_a_machine_of_which_nothing_is_known_says_so(meshplan: Command) -> None:
    told = machine_profile()
    silent = machine_profile(name="silent/measured", facts={})
    for document in (told, silent):
        assert meshplan("profiles", "import", "-", given=json.dumps(document)).code == 0
    checked = meshplan("profiles", "check", told["name"], "silent/measured")
    assert checked.code == 0
    assert "silent/measured: cpu-small is no known device" in checked.errors
    assert f"{told['name']}: no row lies between others" in checked.errors
