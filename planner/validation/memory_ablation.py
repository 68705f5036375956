"""What each parameter of memory is worth: the error of the peaks that it decides, with it and neutral."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.footprints import FOOTPRINTS, WIDTHS, FootprintParameter, footprint_parameters_of
from planner.programs import program_of
from planner.validation.ablation import MOST_RUNS, Ablation, Errors
from planner.validation.comparison import memory_comparison
from planner.validation.evaluation import Evaluator, Outcome
from planner.validation.runs import sampled


def memory_ablations(
    outcomes: Iterable[Outcome], parameters: tuple[FootprintParameter, ...] = FOOTPRINTS
) -> Iterator[Ablation]:
    """Yield what every fitted parameter that some measured peak rests on is worth."""
    measured = [outcome for outcome in outcomes if memory_comparison(outcome)]
    like = Evaluator()
    for parameter in parameters:
        decided = sampled([run for run in measured if _rests_on(run, parameter, parameters)], MOST_RUNS)
        if not decided or not parameter.is_fitted or parameter.effect in WIDTHS:
            continue
        without = tuple(replace(one, value=one.neutral) if one == parameter else one for one in parameters)
        yield Ablation(
            parameter=parameter,
            runs=len(decided),
            error=_errors(decided, Evaluator(footprints=parameters, like=like)),
            neutral=_errors(decided, Evaluator(footprints=without, like=like)),
        )


def _rests_on(
    run: Outcome, parameter: FootprintParameter, parameters: tuple[FootprintParameter, ...]
) -> bool:
    assert run.question is not None
    job = run.question.request.job
    program = program_of(job.framework, job.framework_version)
    return footprint_parameters_of(program, parameters).get(parameter.effect) == parameter


def _errors(runs: Sequence[Outcome], evaluator: Evaluator) -> Errors:
    errors = [
        abs(found.relative_error)
        for run in runs
        if run.question
        and (found := memory_comparison(replace(run, prediction=evaluator.prediction(run.question))))
    ]
    return Errors.of(np.array(errors))
