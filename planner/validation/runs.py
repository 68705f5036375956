"""Timed runs of a folder as questions that can be asked again with other parameters."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.parameters import Parameter, parameters_of
from planner.programs import program_of
from planner.units import Seconds
from planner.validation.comparison import step_time_comparison
from planner.validation.evaluation import Evaluator, Outcome
from planner.validation.requests import Question

Floats = NDArray[np.float64]
Run = TypeVar("Run")


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedRun:
    """One run whose step was timed, what it asks, who published it and the program that it ran."""

    question: Question
    seconds: Seconds
    source: str
    program: str

    def rests_on(self, parameter: Parameter, parameters: tuple[Parameter, ...]) -> bool:
        """Tell whether a parameter decides the run's pace."""
        return parameters_of(self.program, parameters).get(parameter.effect) == parameter


def timed_runs(outcomes: Iterable[Outcome]) -> list[TimedRun]:
    """Return the runs among outcomes that were timed and predicted."""
    return [
        TimedRun(
            question=outcome.question,
            seconds=found.measured,
            source=outcome.row.text("source") or outcome.row.file,
            program=program_of(
                outcome.question.request.job.framework, outcome.question.request.job.framework_version
            ),
        )
        for outcome in outcomes
        if outcome.question and (found := step_time_comparison(outcome))
    ]


def sampled(runs: Sequence[Run], most: int) -> list[Run]:
    """Return at most so many runs, spread evenly over all."""
    return list(runs[:: max(ceil(len(runs) / most), 1)])


def log_errors(
    runs: Sequence[TimedRun], parameters: tuple[Parameter, ...], *, like: Evaluator | None = None
) -> Floats:
    """Return ln(predicted / measured) of each run under some parameters, by kernels of another evaluator."""
    evaluator = Evaluator(parameters=parameters, like=like)
    return np.array(
        [np.log(evaluator.prediction(run.question).step_time_seconds / run.seconds) for run in runs]
    )
