"""What a prediction is told with: warnings of memory that may not suffice."""

from dataclasses import replace

import pytest

from planner.explanation import memory_warnings
from planner.plan import StageMemory
from planner.planning import evaluate_plan
from planner.strategy import ShortPlan
from planner.units import GIBIBYTE
from tests.unit.planner.settings import request_of, setting

CAPACITY_GIB = 80


def warnings_of(*, peak_gib: float, high_gib: float) -> tuple[str, ...]:
    """Return the warnings of an evaluation whose only stage needs so much."""
    prediction = evaluate_plan(request_of(setting(num_layers=2, num_devices=1)), ShortPlan()).prediction
    assert prediction is not None
    stage = changed(prediction.memory[0], peak_gib=peak_gib, high_gib=high_gib)
    return memory_warnings(replace(prediction, memory=(stage,)), memory_fraction=0.94)


def changed(stage: StageMemory, *, peak_gib: float, high_gib: float) -> StageMemory:
    peak = peak_gib * GIBIBYTE
    return replace(
        stage,
        peak_bytes=peak,
        interval_bytes=(2 * peak - high_gib * GIBIBYTE, high_gib * GIBIBYTE),
        capacity_bytes=CAPACITY_GIB * GIBIBYTE,
        fits=peak_gib <= CAPACITY_GIB,
    )


@pytest.mark.parametrize(
    ("peak_gib", "high_gib", "words"),
    [
        (40, 45, None),
        (70, 79, None),
        (70, 82, "up to 82.0 GiB within its interval"),
        (76, 79, "over the safe line of 94%"),
        (76, 84, "over the safe line of 94%"),
        (90, 95, None),
    ],
)
def test_a_stage_that_fits_and_may_not_is_warned_of(
    peak_gib: float, high_gib: float, words: str | None
) -> None:
    warnings = warnings_of(peak_gib=peak_gib, high_gib=high_gib)
    assert len(warnings) == (words is not None)
    assert all(str(words) in text for text in warnings)
