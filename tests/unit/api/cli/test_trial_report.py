from typing import Any

import pytest

from api.cli.trial_report import trial_report

BREAKDOWN = {
    "compute": 0.5,
    "recompute": 0.1,
    "tensor_parallel": 0.2,
    "context_parallel": 0.0,
    "expert_parallel": 0.0,
    "pipeline": 0.0,
    "data_parallel": 0.1,
    "offload": 0.0,
    "bubble": 0.05,
    "optimizer": 0.03,
    "overhead": 0.02,
}


def predicted_memory(stage: int, **changes: float) -> dict[str, Any]:
    states = {"parameters": 100.0, "gradients": 100.0, "optimizer": 200.0} | changes
    return {"stage": stage, "peak_allocated_bytes": 1000.0, "breakdown_bytes": states}


def result(*memory: dict[str, Any], framework: str = "pytorch") -> dict[str, Any]:
    return {
        "id": "1",
        "request": {"job": {"framework": framework}},
        "plan": {"mesh": {}},
        "prediction": {
            "step_time_seconds": 1.0,
            "step_time_interval_seconds": [0.9, 1.1],
            "breakdown_seconds": BREAKDOWN,
            "memory": list(memory or (predicted_memory(0),)),
        },
    }


def operator(phase: str, name: str, seconds: float) -> dict[str, Any]:
    return {
        "phase": phase,
        "operator": name,
        "family": "memory_pass",
        "calls": 2,
        "seconds": seconds,
        "bytes": 2048.0,
    }


def collective(axis: str, seconds: float, name: str = "all_reduce") -> dict[str, Any]:
    return {"axis": axis, "operation": name, "calls": 4, "seconds": seconds, "bytes": 4096.0}


def stage(number: int, *rows: dict[str, Any], **memory: float) -> dict[str, Any]:
    found = {"parameters": 100.0, "gradients": 100.0, "optimizer": 200.0, "peak_allocated": 1000.0}
    found["peak_of_passes"] = memory.get("peak_allocated", 1000.0)
    return {
        "stage": number,
        "memory_bytes": {**found, "process": 1e6, **memory},
        "operators": [row for row in rows if "operator" in row],
        "communication": [row for row in rows if "axis" in row],
    }


def measured(*stages: dict[str, Any], agree: bool | None = True) -> dict[str, Any]:
    return {
        "device": "H100-SXM5-80GB",
        "step_time": {"median_seconds": 2.0, "spread_seconds": 0.1},
        "stages": list(stages),
        "numerics": {"agree": agree, "losses": [1.0]},
    }


def report(given: dict[str, Any], found: dict[str, Any], *, device: str = "H100-SXM5-80GB") -> dict[str, Any]:
    return trial_report(given, found, planned_device=device)


ROWS = (
    operator("forward", "mm", 0.5),
    operator("backward", "mul", 0.2),
    operator("optimizer", "foreach_mul", 0.04),
    collective("tensor", 0.6),
    collective("tensor", 0.1, "reduce_scatter"),
    collective("data", 0.1),
)


def test_parts_add_up_to_the_step_on_both_sides() -> None:
    found = report(result(), measured(stage(0, *ROWS)))
    assert sum(row["measured_seconds"] for row in found["parts"]) == pytest.approx(2.0)
    assert sum(row["predicted_seconds"] for row in found["parts"]) == pytest.approx(1.0)
    by_name = {row["part"]: (row["predicted_seconds"], row["measured_seconds"]) for row in found["parts"]}
    assert by_name["compute"] == pytest.approx((0.6, 0.7))
    assert by_name["tensor_parallel"] == pytest.approx((0.2, 0.7))
    assert by_name["optimizer"] == pytest.approx((0.03, 0.04))
    assert by_name["remainder"] == pytest.approx((0.07, 0.46))


def test_the_link_that_explains_most_of_the_difference_is_named() -> None:
    words = report(result(), measured(stage(0, *ROWS)))["explanation"][0]
    assert "tensor parallel: 200 ms predicted, 700 ms measured" in words
    assert "all_reduce over tensor parallel ranks takes 600 ms of it in 4 calls, 4.0 KiB in all" in words


def test_the_operator_that_explains_most_of_the_difference_is_named() -> None:
    rows = (
        operator("forward", "mm", 1.7),
        operator("backward", "mul", 0.1),
        operator("optimizer", "add", 0.1),
    )
    words = report(result(), measured(stage(0, *rows)))["explanation"][0]
    assert "compute" in words
    assert "mm takes 1.7 s of it" in words


def test_a_remainder_is_told_without_an_operator() -> None:
    words = report(result(), measured(stage(0, operator("forward", "mm", 0.6))))["explanation"][0]
    assert words == "most of the difference in time is remainder: 70 ms predicted, 1.4 s measured"


def test_what_a_step_hides_explains_nothing() -> None:
    rows = (operator("forward", "mm", 1.9), collective("data", 2.0))
    found = report(result(), measured(stage(0, *rows)))
    assert found["parts"][-1]["measured_seconds"] == pytest.approx(-1.9)
    assert "data parallel" in found["explanation"][0]


def test_times_are_those_of_the_stage_that_works_longest() -> None:
    stages = (stage(0, operator("forward", "mm", 0.1)), stage(1, operator("forward", "mm", 0.9)))
    found = report(result(predicted_memory(0), predicted_memory(1)), measured(*stages))
    assert found["parts"][0]["measured_seconds"] == 0.9


def test_memory_is_compared_stage_by_stage_and_the_furthest_is_told() -> None:
    stages = (stage(0), stage(1, optimizer=400.0, peak_allocated=1300.0))
    found = report(result(predicted_memory(0), predicted_memory(1)), measured(*stages))
    assert {
        "stage": 1,
        "part": "optimizer",
        "predicted_bytes": 200.0,
        "measured_bytes": 400.0,
    } in found["memory"]
    assert found["explanation"][1:] == [
        "optimizer of stage 1: 200 B predicted, 400 B measured",
        "peak allocated of stage 1: 1000 B predicted, 1.3 KiB measured, in the passes",
    ]


def test_a_peak_in_the_update_is_told_as_one() -> None:
    found = report(result(), measured(stage(0, peak_allocated=1300.0, peak_of_passes=900.0)))
    assert found["explanation"][-1].endswith("1.3 KiB measured, in the update: the passes have 900 B")


def test_equal_bytes_are_told_as_equal() -> None:
    nothing = {"parameters": 0.0, "gradients": 0.0, "optimizer": 0.0}
    found = report(result(predicted_memory(0, **nothing)), measured(stage(0, **nothing)))
    assert found["explanation"][1:] == [
        "the bytes of the states are as predicted",
        "the bytes of the peak are as predicted",
    ]


@pytest.mark.parametrize(
    ("given", "found", "device", "warning"),
    [
        (result(), measured(stage(0)), "T4-16GB", "planned for T4-16GB, run on H100-SXM5-80GB"),
        (result(), measured(stage(0), agree=False), "H100-SXM5-80GB", "not those of one process"),
        (result(framework="deepspeed"), measured(stage(0)), "H100-SXM5-80GB", "predicted for deepspeed"),
    ],
)
def test_what_keeps_figures_from_being_compared_is_said(
    given: dict[str, Any], found: dict[str, Any], device: str, warning: str
) -> None:
    (line,) = report(given, found, device=device)["warnings"]
    assert warning in line


def test_a_trial_as_planned_has_no_warnings() -> None:
    assert report(result(), measured(stage(0)))["warnings"] == []
