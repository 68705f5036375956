"""Parameters fitted again without one source of runs: what they tell of runs that they never saw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import numpy as np

from planner.framework import Framework
from planner.frameworks import framework_by_name
from planner.parameters import EAGER, PARAMETERS, WIDTHS, Parameter, lineage, parameters_of
from planner.programs import PROGRAMS
from planner.validation.evaluation import Evaluator
from planner.validation.folder import Files
from planner.validation.runs import Floats, TimedRun, log_errors, sampled, timed_runs

MOST_RUNS: Final = 40
"""Runs of one source that a program's parameters are fitted on."""
ROUNDS: Final = 3
TRUST: Final = 0.3
"""Weight of staying with other programs' values: it decides what runs hardly tell."""
LEAST_ERROR: Final = 0.01
"""Errors count by their size, not its square, but for those below this."""
TYPICAL: Final[Mapping[str, float]] = {
    "launch_seconds": 2e-5,
    "pipelined_launch_seconds": 2e-5,
    "serial_host_fraction": 0.5,
    "pass_seconds": 1e-3,
    "step_seconds": 1e-3,
}
"""Sizes by which effects vary between programs; paces vary by about themselves."""
OF_ITS_OWN: Final = frozenset({"expert_parallel"})
"""Effects that say nothing of another program: each hides experts' traffic in its own way, so that links as
they were measured are what is known of one that nobody ran."""
SHOWN_BY_ALL: Final = frozenset({"products", "tensor_parallel"})
"""Effects that any run would show: a program without a value of its own says that it has none.

Kernels and links as they were measured count as one more such program.
"""
ATTENTION: Final = "attention"
"""How effects of fused attention begin, by generation of devices."""
LEAST_SLOPE: Final = 1e-6
"""Change of ln(predicted) with an effect's typical size below which a run does not show it."""
STEP: Final = 0.1
"""Share of the typical size by which derivatives are taken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fit:
    """The parameters of one program that are free, among all."""

    free: tuple[Parameter, ...]
    prior: tuple[float, ...]
    others: tuple[Parameter, ...]
    runs: tuple[TimedRun, ...]
    like: Evaluator

    def at(self, values: Floats) -> tuple[Parameter, ...]:
        """Return all parameters with these values of the free ones."""
        own = (replace(one, value=float(value)) for one, value in zip(self.free, values, strict=True))
        return (*own, *self.others)

    def errors(self, values: Floats) -> Floats:
        """Return ln(predicted / measured) of every run."""
        return log_errors(self.runs, self.at(values), like=self.like)


def left_out_files(files: Files, *, on_source: Callable[[], None] | None = None) -> Files:
    """Return all outcomes, each predicted by parameters that were fitted without its source."""
    runs = timed_runs(outcome for outcomes in files.values() for outcome in outcomes)
    predicted, like = {}, Evaluator()
    for source in dict.fromkeys(run.source for run in runs):
        evaluator = Evaluator(parameters=parameters_without(source, runs, like=like), like=like)
        for outcomes in files.values():
            for outcome in outcomes:
                if (outcome.row.text("source") or outcome.row.file) == source:
                    predicted[outcome.row] = evaluator.outcome(outcome.row)
        if on_source:
            on_source()
    return {
        name: tuple(predicted.get(outcome.row, outcome) for outcome in outcomes)
        for name, outcomes in files.items()
    }


def parameters_without(
    source: str,
    runs: Sequence[TimedRun],
    parameters: tuple[Parameter, ...] = PARAMETERS,
    *,
    like: Evaluator | None = None,
) -> tuple[Parameter, ...]:
    """Return the parameters as other sources show them.

    Those of programs that the source ran are fitted again on what others ran of them, from the values
    of programs near them; where nobody else did, they take these.
    """
    touched = [
        one
        for one in parameters
        if one.is_fitted and any(run.rests_on(one, parameters) for run in runs if run.source == source)
    ]
    ran = tuple(dict.fromkeys(run.program for run in runs if run.source != source))
    known = [
        one
        for one in parameters
        if one.is_known
        and one not in touched
        and any(parameters_of(program, parameters).get(one.effect) == one for program in ran)
    ]
    fitted, like = parameters, like or Evaluator()
    # Forks first: what they have of their own must not be taken for what they share.
    for program in sorted(
        dict.fromkeys(one.program for one in touched), key=lambda name: -len(lineage(name))
    ):
        free = tuple(one for one in touched if one.program == program)
        prior = tuple(_prior(one, ran, known, parameters) for one in free)
        names = {(one.program, one.effect) for one in free}
        others = tuple(one for one in fitted if (one.program, one.effect) not in names)
        shown = _runs_for(free, source, runs, parameters)
        fit = _Fit(free=free, prior=prior, others=others, runs=shown, like=like)
        fitted = fit.at(_solved(fit))
    return fitted


def _runs_for(
    free: Sequence[Parameter],
    source: str,
    runs: Sequence[TimedRun],
    parameters: tuple[Parameter, ...],
) -> tuple[TimedRun, ...]:
    """Return some runs of every other source that rest on the free parameters."""
    known = [
        run for run in runs if run.source != source and any(run.rests_on(one, parameters) for one in free)
    ]
    sources = dict.fromkeys(run.source for run in known)
    return tuple(
        run for name in sources for run in sampled([run for run in known if run.source == name], MOST_RUNS)
    )


def _prior(
    parameter: Parameter, ran: Sequence[str], known: Sequence[Parameter], parameters: tuple[Parameter, ...]
) -> float:
    """Return the median of the effect in the nearest of the programs that others ran; else neutral.

    ``known`` is what those show. A fork, or what a program is a fork of, is nearer than programs that
    launch kernels alike.
    """
    if parameter.effect in WIDTHS | OF_ITS_OWN:
        return parameter.neutral
    kin = [one.value for one in known if one.effect == parameter.effect and _is_fork(one, parameter)]
    alike = [one for one in known if _runs_alike(one.program, parameter)]
    same = [one.value for one in alike if one.effect == parameter.effect]
    # Kernels of attention are of one age on all devices.
    is_attention = parameter.effect.startswith(ATTENTION)
    near = [one.value for one in alike if is_attention and one.effect.startswith(ATTENTION)]
    if parameter.effect in SHOWN_BY_ALL:
        without = [one for one in ran if parameter.effect not in parameters_of(one, parameters)]
        same += [parameter.neutral for program in without if _runs_alike(program, parameter)]
        same.append(parameter.neutral)
    return median(kin or same or near or [parameter.neutral])


def _is_fork(one: Parameter, other: Parameter) -> bool:
    """Tell whether either program is a fork of the other's."""
    return one.program in lineage(other.program) or other.program in lineage(one.program)


def _runs_alike(program: str, parameter: Parameter) -> bool:
    """Tell whether another program runs what a parameter's effect is about as the parameter's does.

    It launches a kernel for each operation, or fuses them; it hides its collectives, or waits for them.
    """
    if (program in EAGER) != (parameter.program in EAGER):
        return False
    hides = [_traits(name).hides_tensor_parallel_backward for name in (program, parameter.program)]
    return parameter.effect != "tensor_parallel" or hides[0] == hides[1]


def _traits(program: str) -> Framework:
    """Return the traits of a program, or of a framework, by its name."""
    return PROGRAMS.get(program) or framework_by_name(program)


def _solved(fit: _Fit) -> Floats:
    """Return the values of least absolute error, by least squares reweighted in rounds."""
    prior = np.array(fit.prior)
    if not fit.runs:
        return prior
    sizes = np.array([TYPICAL.get(one.effect, 1.0) for one in fit.free])
    # A start where every effect shows: at zero some have no slope.
    values = np.array([one.value for one in fit.free])
    for _ in range(ROUNDS):
        errors = fit.errors(values)
        slopes = np.stack(
            [(fit.errors(values + STEP * sizes * axis) - errors) / STEP for axis in np.eye(len(values))],
            axis=1,
        )
        weights = 1.0 / np.sqrt(np.maximum(np.abs(errors), LEAST_ERROR))
        weighed = slopes * weights[:, None]
        pull = TRUST**2 * (prior - values) / sizes
        moves = np.linalg.solve(
            weighed.T @ weighed + TRUST**2 * np.eye(len(values)), pull - weighed.T @ (errors * weights)
        )
        values = np.maximum(values + sizes * np.clip(moves, -1.0, 1.0), STEP * sizes * (prior > 0))
    # What no run shows must not stay where the source that is left out had put it.
    return np.where(np.any(np.abs(slopes) > LEAST_SLOPE, axis=0), values, prior)
