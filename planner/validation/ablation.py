"""What each parameter is worth: the error of the runs that it decides, with it and with it set neutral."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.footprints import FootprintParameter
from planner.parameters import PARAMETERS, WIDTHS, Parameter
from planner.validation.evaluation import Evaluator
from planner.validation.metrics import HIGH_QUANTILE
from planner.validation.runs import Floats, TimedRun, log_errors, sampled

MOST_RUNS: Final = 120
"""Runs that are asked again for each parameter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """Absolute relative errors of the runs that a parameter decides, with it and without it."""

    parameter: Parameter | FootprintParameter
    runs: int
    error: "Errors"
    neutral: "Errors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Errors:
    """The middle of some absolute relative errors, and what a tenth of them exceeds."""

    median: float
    p90: float

    @classmethod
    def of(cls, errors: Floats) -> "Errors":
        """Return the figures of absolute relative errors."""
        return cls(median=float(np.median(errors)), p90=float(np.quantile(errors, HIGH_QUANTILE)))


def ablations(runs: Sequence[TimedRun], parameters: tuple[Parameter, ...] = PARAMETERS) -> Iterator[Ablation]:
    """Yield what every fitted parameter that some run rests on is worth."""
    like = Evaluator()
    for parameter in parameters:
        decided = sampled([run for run in runs if run.rests_on(parameter, parameters)], MOST_RUNS)
        is_asked = (
            parameter.is_known and parameter.effect not in WIDTHS and parameter.value != parameter.neutral
        )
        if not decided or not is_asked:
            continue
        without = tuple(replace(one, value=one.neutral) if one == parameter else one for one in parameters)
        yield Ablation(
            parameter=parameter,
            runs=len(decided),
            error=Errors.of(_absolute(log_errors(decided, parameters, like=like))),
            neutral=Errors.of(_absolute(log_errors(decided, without, like=like))),
        )


def _absolute(logs: Floats) -> Floats:
    """Return the absolute relative errors of ln(predicted / measured)."""
    return np.abs(np.expm1(logs))
