"""``meshplan profiles check``."""

from tests.unit.api.cli.commands import Command


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
