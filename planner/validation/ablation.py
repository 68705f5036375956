"""What each parameter is worth: the error of the runs that it decides, with it and with it set neutral."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.footprints import FootprintParameter
from planner.parameters import PARAMETERS, Parameter
from planner.validation.evaluation import Evaluator
from planner.validation.runs import Floats, TimedRun, log_errors, sampled

MOST_RUNS: Final = 120
"""Runs that are asked again for each parameter."""
WIDTH: Final = "spread"
"""The effect that changes intervals and no prediction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """Median absolute relative error of the runs that a parameter decides, and without it."""

    parameter: Parameter | FootprintParameter
    runs: int
    error: float
    neutral_error: float


def ablations(runs: Sequence[TimedRun], parameters: tuple[Parameter, ...] = PARAMETERS) -> Iterator[Ablation]:
    """Yield what every fitted parameter that some run rests on is worth."""
    like = Evaluator()
    for parameter in parameters:
        decided = sampled([run for run in runs if run.rests_on(parameter, parameters)], MOST_RUNS)
        if not decided or not parameter.is_fitted or parameter.effect == WIDTH:
            continue
        without = tuple(replace(one, value=one.neutral) if one == parameter else one for one in parameters)
        yield Ablation(
            parameter=parameter,
            runs=len(decided),
            error=_median_error(log_errors(decided, parameters, like=like)),
            neutral_error=_median_error(log_errors(decided, without, like=like)),
        )


def _median_error(logs: Floats) -> float:
    return float(np.median(np.abs(np.expm1(logs))))
