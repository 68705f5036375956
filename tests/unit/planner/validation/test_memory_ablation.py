"""Parameters of memory set neutral, on made-up runs whose peaks the planner predicts exactly."""

from dataclasses import replace
from functools import cache

import pytest

from planner.footprints import FOOTPRINTS, FootprintParameter
from planner.units import GIBIBYTE
from planner.validation.evaluation import Evaluator, Outcome
from planner.validation.memory_ablation import memory_ablations
from tests.unit.planner.validation.published import row

BUFFERS = next(one for one in FOOTPRINTS if (one.program, one.effect) == ("deepspeed", "buffer_bytes"))


@cache
def outcomes() -> tuple[Outcome, ...]:
    """Return runs of DeepSpeed whose measured peaks are the predicted ones."""
    rows = [row(framework="DeepSpeed", mbs=mbs, peak_mem_gib="1") for mbs in ("1", "2")]
    return tuple(map(exactly, map(Evaluator().outcome, rows)))


def exactly(outcome: Outcome) -> Outcome:
    assert outcome.prediction is not None, outcome.skipped
    peak = max(stage.peak_allocated_bytes for stage in outcome.prediction.memory)
    return replace(outcome, measured=replace(outcome.measured, peak_memory_bytes=peak))


def test_a_parameter_that_pays_costs_something_when_set_neutral() -> None:
    found = {one.parameter: one for one in memory_ablations(outcomes())}
    worth = found[BUFFERS]
    assert worth.runs == len(outcomes())
    assert worth.error.p90 == pytest.approx(0.0, abs=1e-9)
    peaks = [outcome.measured.peak_memory_bytes for outcome in outcomes()]
    assert worth.neutral.median > 3 * GIBIBYTE / max(peak for peak in peaks if peak)


def test_widths_guesses_and_parameters_that_no_run_rests_on_are_not_asked_for() -> None:
    asked: list[FootprintParameter] = [
        one.parameter for one in memory_ablations(outcomes()) if isinstance(one.parameter, FootprintParameter)
    ]
    assert {one.program for one in asked} == {"deepspeed", "pytorch"}
    assert all(one.is_fitted for one in asked)
    assert not {"state_error", "transient_error"} & {one.effect for one in asked}
