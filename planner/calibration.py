"""What runs on a machine say of its kernels, links and host: a factor on each kind, fitted to step times.

A step's logarithm is nearly linear in the logarithms of the kinds' times, so the factors are those of a
regularised least-squares fit (Gauss-Newton on the replayed step): each starts at 1 with the spread that its
own figures and a running step have, and moves as far as the runs ask for. Bayes' rule gives the
uncertainty: the inverse of the summed information of prior and runs.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import exp, hypot
from statistics import median
from typing import Any, Final

import numpy as np

from planner.calibration_fit import Floats, Posterior, fitted, shares_at
from planner.cost.corrections import (
    FACT,
    FAMILIES,
    Correction,
    Corrections,
    Kind,
    corrections_document,
    corrections_in,
)
from planner.cost.tally import Family
from planner.errors import InvalidRequest
from planner.logged_steps import LoggedStep, PricedStep, before_calibration
from planner.planning import PlanRequest
from planner.prediction import MODEL_ERROR
from planner.profile import Profile
from planner.units import Seconds

LEAST_STEPS: Final = 3
"""Fewer runs do not tell a machine from an odd run."""
STEP_SPREAD: Final = 0.2
"""Relative spread, one standard deviation, of kernels in a running step over kernels by themselves.

Published devices take 1.00 to 1.33 (`cost.device_products`), eager programs more.
"""
UNSEEN_ERROR: Final = 0.25
"""Relative error of a kind of which no run has any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedStep:
    """The predictions of a logged step before and after."""

    label: str
    measured_seconds: Seconds
    before_seconds: Seconds
    after_seconds: Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedKind:
    """One factor, with what was believed of it before and its largest share of a logged step."""

    kind: Kind
    correction: Correction
    prior_relative_error: float
    largest_share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """The corrections of a machine, and how well they tell the steps that they rest on."""

    device: str
    kinds: tuple[FittedKind, ...]
    steps: tuple[FittedStep, ...]
    corrections: Corrections

    @property
    def error_before(self) -> float:
        """Median of the absolute relative errors as predicted."""
        return median(abs(one.before_seconds / one.measured_seconds - 1) for one in self.steps)

    @property
    def error_after(self) -> float:
        """The same under the corrections."""
        return median(abs(one.after_seconds / one.measured_seconds - 1) for one in self.steps)


def calibrate(steps: Sequence[LoggedStep], *, device: str) -> Calibration:
    """Return the corrections of a device that logged steps ask for.

    Raises InvalidRequest for fewer than three steps, for a plan that is illegal, and for one that does not
    run on this device alone.
    """
    if len(steps) < LEAST_STEPS:
        raise InvalidRequest(
            f"{len(steps)} logged steps do not calibrate a machine: {LEAST_STEPS} are the least",
            pointer="/steps",
            nearest_legal=(LEAST_STEPS,),
        )
    priced = [PricedStep.of(step, device=device, number=number) for number, step in enumerate(steps)]
    measured = np.array([step.measured_seconds for step in steps])
    spreads = np.array([step.spread_seconds for step in steps])

    def log_steps(logs: Floats) -> Floats:
        by_kind = dict(zip(Kind, logs.tolist(), strict=True))
        return np.log([one.seconds(by_kind) for one in priced])

    shares = shares_at(log_steps, np.zeros(len(Kind)))
    priors = _prior_errors(priced, shares)
    posterior = fitted(
        log_steps,
        np.log(measured),
        step_errors=np.hypot(MODEL_ERROR, spreads / measured),
        prior_errors=priors,
    )
    kinds = _kinds(posterior, priors, shares)
    before, after = np.exp(log_steps(np.zeros(len(Kind)))), np.exp(log_steps(posterior.logs))
    return Calibration(
        device=device,
        kinds=kinds,
        steps=tuple(
            FittedStep(
                label=step.label,
                measured_seconds=step.measured_seconds,
                before_seconds=float(first),
                after_seconds=float(then),
            )
            for step, first, then in zip(steps, before, after, strict=True)
        ),
        corrections=_corrections(kinds, posterior),
    )


def check_calibration(profile: Profile) -> bool:
    """Whether a profile holds a calibration; InvalidRequest for one that is not of the form."""
    return FACT in profile.facts and bool(corrections_in(profile).by_kind)


def calibration_facts(calibration: Calibration, request: PlanRequest, *, created_at: str) -> dict[str, Any]:
    """Return the facts of a profile that holds a calibration of the measurements in a request."""
    fitted_kinds = {one.kind.value: one for one in calibration.kinds}
    document = corrections_document(calibration.corrections)
    kinds = [
        row
        | {
            "prior_relative_error": fitted_kinds[row["kind"]].prior_relative_error,
            "largest_share": fitted_kinds[row["kind"]].largest_share,
        }
        for row in document["kinds"]
    ]
    used = [one for one in before_calibration(request).profiles if one.device == calibration.device]
    return {
        FACT: {
            "created_at": created_at,
            **document,
            "kinds": kinds,
            "steps": [asdict(step) for step in calibration.steps],
            "median_error_before": calibration.error_before,
            "median_error_after": calibration.error_after,
            "profiles": [{"name": profile.name, "digest": profile.digest} for profile in used],
        }
    }


def _prior_errors(priced: Sequence[PricedStep], shares: Floats) -> Floats:
    """Return the relative error of each kind before any run: its figures' own, and a running step's."""
    steps = np.array([one.seconds({}) for one in priced])
    errors = [one.errors() for one in priced]
    families = list(FAMILIES.values())
    seconds = dict.fromkeys(Family, 0.0)
    for family, of_kind in zip(families, steps @ shares, strict=True):
        seconds[family] += float(of_kind)
    found = []
    for family in families:
        error = sum(of_step.get(family, 0.0) for of_step in errors)
        own = error / seconds[family] if seconds[family] > 0 and error > 0 else UNSEEN_ERROR
        found.append(hypot(STEP_SPREAD, own))
    return np.array(found)


def _kinds(posterior: Posterior, priors: Floats, shares: Floats) -> tuple[FittedKind, ...]:
    return tuple(
        FittedKind(
            kind=kind,
            correction=Correction(
                factor=exp(float(posterior.logs[number])),
                relative_error=float(
                    posterior.errors[number] if posterior.informed[number] else priors[number]
                ),
                informed=told,
            ),
            prior_relative_error=float(priors[number]),
            largest_share=float(shares[:, number].max()),
        )
        for number, (kind, told) in enumerate(zip(Kind, posterior.informed.tolist(), strict=True))
    )


def _corrections(kinds: Sequence[FittedKind], posterior: Posterior) -> Corrections:
    told = [number for number, one in enumerate(kinds) if one.correction.informed]
    return Corrections(
        by_kind={one.kind: one.correction for one in kinds},
        correlations={
            frozenset((kinds[one].kind, kinds[other].kind)): float(posterior.correlations[one, other])
            for one, other in combinations(told, 2)
        },
    )
