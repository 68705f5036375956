import json

import pytest

from planner.validation.evaluation import Evaluator, Outcome
from planner.validation.report import figures, part_labels, report, validation_document
from tests.unit.planner.validation.published import row

FIGURES = {"rows", "used", "skipped", "step_time", "memory", "fits", "assumed", "noise"}
STEP_TIME = {
    "rows", "median_abs_error", "p90_abs_error", "bias", "interval_coverage", "kendall_tau", "regret"
}  # fmt: skip
MEMORY = {
    "rows", "median_abs_error", "p90_abs_error", "bias", "interval_coverage", "underestimated_over_5_percent"
}  # fmt: skip
FITS = {"rows", "true_fit", "true_oom", "false_fit", "false_oom"}


def outcomes(*cells: dict[str, str]) -> list[Outcome]:
    evaluator = Evaluator()
    return [evaluator.outcome(row(**changed)) for changed in cells]


def test_the_document_has_the_figures_of_the_contract() -> None:
    document = validation_document({"a.csv": outcomes({}), "b.csv": []})
    assert set(document) == {"all", "files"}
    assert set(document["files"]) == {"a.csv", "b.csv"}
    for found in (document["all"], *document["files"].values()):
        assert set(found) == FIGURES | {"parts"}
        assert (set(found["step_time"]), set(found["memory"]), set(found["fits"])) == (
            STEP_TIME,
            MEMORY,
            FITS,
        )
    json.dumps(document, allow_nan=False)


def test_an_empty_file_has_no_figures() -> None:
    assert report([])["step_time"]["median_abs_error"] is None


def test_every_row_is_used_or_skipped() -> None:
    found = figures(outcomes({}, {"layers": ""}, {"layers": ""}, {"experts": "8"}))
    assert (found["rows"], found["used"]) == (4, 1)
    assert found["skipped"] == {
        "no layers": 2,
        "no config of the model is known, and no column describes its layers of experts": 1,
    }


def test_what_used_rows_leave_unsaid_is_counted() -> None:
    found = figures(outcomes({"recompute": ""}, {"recompute": "", "cp": ""}, {"recompute": "", "layers": ""}))
    assert found["assumed"] == {"recompute": 2, "cp": 1}


def test_errors_are_shares_of_the_measurement() -> None:
    (whole,) = outcomes({})
    assert whole.prediction is not None
    seconds = whole.prediction.step_time_seconds
    found = figures(outcomes({"step_time_s": f"{2 * seconds}"}, {"step_time_s": f"{seconds}"}))["step_time"]
    assert found["rows"] == 2
    assert found["median_abs_error"] == pytest.approx(0.25)
    assert found["bias"] == pytest.approx(-0.25)
    assert found["p90_abs_error"] == pytest.approx(0.45)
    assert found["interval_coverage"] == 0.5


def test_order_is_judged_among_equal_models_on_as_many_devices() -> None:
    compared = outcomes(
        {"mbs": "1", "step_time_s": "0.9"},
        {"mbs": "4", "step_time_s": "0.8"},
        {"gpus": "4", "dp": "2", "step_time_s": "0.1"},
        {"layers": "11", "step_time_s": "9"},
    )
    found = figures(compared)["step_time"]
    assert found["kendall_tau"] == 1.0
    assert found["regret"] == 0.0


def test_repeats_of_a_run_are_one_choice() -> None:
    faster, slower = {"mbs": "4"}, {"mbs": "1"}
    compared = outcomes(
        {**faster, "step_time_s": "0.8"},
        {**faster, "step_time_s": "1.0", "notes": "again"},
        {**slower, "step_time_s": "0.95"},
    )
    assert figures(compared[:2])["step_time"]["regret"] is None
    assert figures(compared)["step_time"]["kendall_tau"] == 1.0
    assert figures(compared)["step_time"]["regret"] == 0.0


def test_batches_of_any_size_are_compared_by_the_token() -> None:
    (small,) = outcomes({})
    assert small.prediction is not None
    seconds = small.prediction.step_time_seconds
    slower = outcomes({"step_time_s": f"{seconds}"}, {"gbs": "640", "step_time_s": f"{9.9 * seconds}"})
    assert figures(slower)["step_time"]["kendall_tau"] == 1.0


def test_verdicts_are_counted_four_ways() -> None:
    large = {"layers": "2200", "step_time_s": ""}
    found = figures(
        outcomes({}, {**large, "oom": "yes"}, {**large, "oom": "no"}, {"step_time_s": "", "oom": "yes"})
    )
    assert found["fits"] == {"rows": 4, "true_fit": 1, "true_oom": 1, "false_fit": 1, "false_oom": 1}


def test_noise_is_that_of_repeats() -> None:
    found = figures(
        outcomes(
            {"step_time_s": "1.0"},
            {"step_time_s": "1.02", "notes": "again"},
            {"step_time_s": "5", "mbs": "1"},
        )
    )
    assert found["noise"]["pairs"] == 1
    assert found["noise"]["median"] == pytest.approx(0.02 / 1.01 / 2**0.5)


def test_parts_have_figures_of_their_own() -> None:
    found = report(outcomes({}, {"precision": "FP8", "step_time_s": "0.4"}, {"experts": "8"}))
    assert set(found["parts"]) == {"bf16", "fp8", "dense", "experts", "H100"}
    assert found["parts"]["fp8"]["rows"] == 1
    assert found["parts"]["experts"]["used"] == 0
    assert "parts" not in found["parts"]["dense"]


def test_a_row_says_its_parts_itself() -> None:
    assert part_labels(row(precision="amp_bf16", experts="1")) == ("bf16", "dense", "H100")
    assert part_labels(row(precision="", device="", experts="64")) == ("experts",)
    named = row(precision="", device="", experts="")
    assert part_labels(named, assumed=frozenset({"experts"})) == ("experts",)
