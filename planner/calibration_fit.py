"""A regularised least-squares fit of a few factors to logarithms of step times, with its uncertainty."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LogSteps = Callable[[Floats], Floats]
"""Returns the logarithms of all predicted steps where each kind's time is ``exp`` of its entry as long."""

PROBE: Final = 0.05
"""Change of a kind's logarithm by which its share of a step is found."""
MOST_ROUNDS: Final = 12
SETTLED: Final = 1e-4
"""A round that moves no logarithm by more is the last one."""
MOST_LOG: Final = 3.0
"""No kind takes a twentieth or twenty times of what was measured of it."""
INFORMED_SHARE: Final = 0.9
"""Runs tell of a kind where its uncertainty would fall to this share of what it was, were all others known.

What they tell of several kinds together alone, those then share.
"""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Posterior:
    """What is believed of the logarithms of all factors [kinds] once the runs are known."""

    logs: Floats
    errors: Floats
    """One standard deviation each."""
    correlations: Floats
    """Of their errors [kinds, kinds]."""
    informed: NDArray[np.bool_]
    """Of which kinds the runs say something; all others stay where they were."""


def fitted(
    log_steps: LogSteps, log_measured: Floats, *, step_errors: Floats, prior_errors: Floats
) -> Posterior:
    """Return the factors that steps ask for, each as far as its own prior lets it go.

    ``step_errors`` [steps] and ``prior_errors`` [kinds] are standard deviations of logarithms. Where
    steps scatter by more than theirs (chi-square over its degrees of freedom above 1), all uncertainties
    widen as much.
    """
    free = np.ones(len(prior_errors), dtype=bool)
    logs, slopes = _settled(log_steps, log_measured, step_errors, prior_errors, free)
    covariance = _covariance(slopes, step_errors, prior_errors)
    told = prior_errors**2 * ((slopes / step_errors[:, None]) ** 2).sum(axis=0)
    informed = 1.0 / np.sqrt(1.0 + told) < INFORMED_SHARE
    if not informed.all():
        logs, slopes = _settled(log_steps, log_measured, step_errors, prior_errors, informed)
    covariance *= max(1.0, _scatter(log_steps(logs) - log_measured, slopes, covariance, step_errors))
    deviations = np.sqrt(np.diag(covariance))
    return Posterior(
        logs=logs,
        errors=np.minimum(deviations, prior_errors),
        correlations=covariance / np.outer(deviations, deviations),
        informed=informed,
    )


def _settled(
    log_steps: LogSteps,
    log_measured: Floats,
    step_errors: Floats,
    prior_errors: Floats,
    free: NDArray[np.bool_],
) -> tuple[Floats, Floats]:
    """Return the logarithms where prior and steps balance, and the slopes there; only ``free`` ones move."""
    logs = np.zeros(len(prior_errors))
    slopes = shares_at(log_steps, logs)
    for _ in range(MOST_ROUNDS):
        # Weighted rows of steps, then one row that draws each kind back to where it was.
        missed = (log_measured - log_steps(logs)) / step_errors
        rows = np.vstack([slopes[:, free] / step_errors[:, None], np.diag(1.0 / prior_errors[free])])
        move = np.linalg.lstsq(rows, np.concatenate([missed, -logs[free] / prior_errors[free]]), rcond=None)[
            0
        ]
        before = logs.copy()
        logs[free] = np.clip(logs[free] + move, -MOST_LOG, MOST_LOG)
        if np.abs(logs - before).max(initial=0.0) < SETTLED:
            break
        slopes = shares_at(log_steps, logs)
    return logs, slopes


def shares_at(log_steps: LogSteps, logs: Floats) -> Floats:
    """Return the share of each kind in each step [steps, kinds]: the slope of the logarithms."""
    columns = []
    for number in range(len(logs)):
        probe = np.zeros(len(logs))
        probe[number] = PROBE
        columns.append((log_steps(logs + probe) - log_steps(logs - probe)) / (2 * PROBE))
    return np.stack(columns, axis=1)


def _covariance(slopes: Floats, step_errors: Floats, prior_errors: Floats) -> Floats:
    information = (slopes / step_errors[:, None] ** 2).T @ slopes + np.diag(prior_errors**-2.0)
    return np.asarray(np.linalg.inv(information), dtype=np.float64)


def _scatter(missed: Floats, slopes: Floats, covariance: Floats, step_errors: Floats) -> float:
    """Return chi-square of the steps over their number less what the fit takes of it."""
    information = (slopes / step_errors[:, None] ** 2).T @ slopes
    taken = float(np.trace(information @ covariance))
    return float(((missed / step_errors) ** 2).sum() / max(len(missed) - taken, 1.0))
