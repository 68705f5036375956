from pathlib import Path
from typing import Any

from benchmarks.closed_loop.measurements import (
    Measurement,
    keep_measurements,
    measurement_of,
    read_measurements,
    together,
)

TRIAL: dict[str, Any] = {
    "step_time": {"samples_seconds": [2.0, 1.0], "passes_seconds": 0.75, "update_seconds": 0.25},
    "stages": [
        {"memory_bytes": {"peak_allocated": 10.0, "process": 90.0}},
        {"memory_bytes": {"peak_allocated": 30.0, "process": 70.0}},
    ],
}


def measured(name: str, *seconds: float, is_control: bool = False) -> Measurement:
    trial = {**TRIAL, "step_time": {**TRIAL["step_time"], "samples_seconds": list(seconds)}}
    return measurement_of({"plan": name}, trial, is_control=is_control)


def test_measurement_has_the_peak_of_every_stage_and_the_largest_process() -> None:
    found = measurement_of({"plan": "a"}, TRIAL, is_control=False)
    assert found.peak_bytes == [10.0, 30.0]
    assert found.process_bytes == 90.0
    assert found.seconds == [2.0, 1.0]


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    found = [measured("a", 1.0), measured("b", 2.0, is_control=True)]
    keep_measurements(tmp_path, found)
    assert read_measurements(tmp_path) == found


def test_a_folder_without_measurements_has_none(tmp_path: Path) -> None:
    assert read_measurements(tmp_path) == []


def test_steps_of_a_plan_that_ran_twice_are_put_together() -> None:
    both = together([measured("a", 1.0), measured("b", 5.0), measured("a", 2.0, 3.0)])
    assert [one.seconds for one in both] == [[1.0, 2.0, 3.0], [5.0]]


def test_copies_of_the_control_stay_apart() -> None:
    both = together(
        [measured("a", 1.0, is_control=True), measured("a", 2.0), measured("a", 3.0, is_control=True)]
    )
    assert [one.seconds for one in both] == [[1.0], [2.0], [3.0]]
