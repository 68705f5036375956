"""Profile, plan, run and compare, scenario by scenario."""

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

from benchmarks.closed_loop.figures import Trialled
from benchmarks.closed_loop.measurements import Measurement, keep_measurements, key_of, read_measurements
from benchmarks.closed_loop.models import Model
from benchmarks.closed_loop.network import joined
from benchmarks.closed_loop.plans import Predicted, legal_plans, planned, request_for
from benchmarks.closed_loop.profiles import Document, measured_profile
from benchmarks.closed_loop.rounds import WARM_UP_STEPS, can_run, joined_runs, run_plans
from benchmarks.closed_loop.scenarios import Scenario
from planner.profile import Profile

PROFILE: Final = "whole-profile.json"
"""Kernels and collectives of a scenario, once all of it is measured."""
STEPS_A_ROUND: Final = 2
"""One off the clock, and one on it."""
QUICK_SHARE: Final = 0.3
"""Of the time to run plans, what those that are predicted quickest may take."""
WATCHED_STEPS: Final = 2
"""Beside those that are timed: one that counts live bytes takes as long as two."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How long to measure and to run."""

    kernel_seconds: float
    """Of a profile of kernels and collectives."""
    link_seconds: float
    """Of a profile of collectives alone."""
    run_seconds: float
    """Of the plans of one model, as predicted; where all take longer, some are left out."""
    rounds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowance:
    """For how long profiles and runs are begun; what is begun goes on to its end."""

    seconds: float = math.inf
    started: float = field(default_factory=time.monotonic)

    def is_left(self) -> bool:
        """Whether another one may begin."""
        return time.monotonic() - self.started < self.seconds


def run_loop(
    scenarios: Sequence[Scenario], effort: Effort, *, folder: Path, allowance: Allowance | None = None
) -> Iterator[Trialled]:
    """Yield what came of each model of each scenario, of what the folder has and what is allowed to run.

    What earlier calls have measured is not measured again, but for what they did not come to.
    """
    allowance = allowance or Allowance()
    kernels: dict[int, Document] = {}
    for scenario in scenarios:
        own = folder / scenario.slug
        own.mkdir(parents=True, exist_ok=True)
        document = _profiled(scenario, kernels.get(scenario.ranks), effort, allowance, folder=own)
        if document is None:
            say(f"{scenario.name}: left for another call")
            continue
        kernels.setdefault(scenario.ranks, document)
        for model in scenario.models:
            found = _trialled(scenario, model, document, effort, allowance, folder=own / model.name)
            if found is None:
                say(f"{scenario.name}, {model.name}: left for another call")
            else:
                yield found


def _profiled(
    scenario: Scenario, known: Document | None, effort: Effort, allowance: Allowance, *, folder: Path
) -> Document | None:
    """Return the profile of a scenario's ranks; None where nobody has measured it and none may begin."""
    path = folder / PROFILE
    if path.exists():
        document: Document = json.loads(path.read_text())
        return document
    if not allowance.is_left():
        return None
    say(f"{scenario.name}: profiling{' the link' if known else ''}")
    seconds = effort.link_seconds if known else effort.kernel_seconds
    with joined(scenario.link, ranks=scenario.ranks) as network:
        found = measured_profile(network, scenario.models, folder=folder, seconds=seconds, kernels_of=known)
    path.write_text(json.dumps(found))
    return found


def _trialled(
    scenario: Scenario,
    model: Model,
    document: Document,
    effort: Effort,
    allowance: Allowance,
    *,
    folder: Path,
) -> Trialled | None:
    """Return what came of a model; None where none of its plans has run and none may begin."""
    request = request_for(model, Profile.from_document(document), ranks=scenario.ranks)
    legal = [plan for plan in legal_plans(request, model) if can_run(plan)]
    chosen = _on_all_ranks(planned(request, model), legal, ranks=scenario.ranks)
    measurements = read_measurements(folder)
    left = _left(scenario, legal, chosen, measurements, effort)
    if left and allowance.is_left():
        say(f"{scenario.name}, {model.name}: running {len(left)} of {len(legal)} legal plans")
        folder.mkdir(exist_ok=True)
        with joined(scenario.link, ranks=scenario.ranks) as network:
            measurements += run_plans(network, left, rounds=effort.rounds, folder=folder)
        keep_measurements(folder, measurements)
    if not measurements:
        return None
    ran = joined_runs([chosen, *legal], measurements)
    return Trialled(scenario=scenario, model=model, chosen=chosen, ran=ran, num_legal=len(legal))


def _left(
    scenario: Scenario,
    legal: Sequence[Predicted],
    chosen: Predicted,
    measurements: Sequence[Measurement],
    effort: Effort,
) -> list[Predicted]:
    """Return the plans to run: as many as can be afforded; later a choice that has changed since.

    That one runs beside the plan that was fastest, as the machine may have changed as well.
    """
    if not measurements:
        if not scenario.only:
            return affordable(legal, chosen, effort)
        named = [plan for plan in legal if plan.words in scenario.only]
        return affordable(named, chosen, replace(effort, run_seconds=math.inf))
    if any(key_of(one.order) == key_of(chosen.order()) for one in measurements):
        return []
    ran = joined_runs(legal, measurements)
    fastest = min(ran, key=lambda one: one.step_seconds, default=None)
    return [chosen, fastest.predicted] if fastest else [chosen]


def _on_all_ranks(chosen: Predicted, legal: Sequence[Predicted], *, ranks: int) -> Predicted:
    """Return the planner's plan; where it leaves ranks idle, the one on all of them predicted quickest.

    The ranks of a scenario run their plans in turn, so each plan needs all of them.
    """
    if chosen.plan.mesh.world_size == ranks:
        return chosen
    return min(legal, key=lambda plan: plan.prediction.step_time_seconds)


def affordable(legal: Sequence[Predicted], chosen: Predicted, effort: Effort) -> list[Predicted]:
    """Return the plans that can be run in the time, the chosen one among them.

    A part of it is for those that are predicted to be quickest: what is chosen is held against its rivals.
    The rest is for every n-th of all, quick and slow.
    """
    in_order = sorted(legal, key=lambda plan: plan.prediction.step_time_seconds)
    steps = STEPS_A_ROUND * effort.rounds + WARM_UP_STEPS + WATCHED_STEPS
    seconds = [steps * plan.prediction.step_time_seconds for plan in in_order]
    quick = sum(spent <= QUICK_SHARE * effort.run_seconds for spent in accumulate(seconds))
    for every in range(1, len(in_order) + 1):
        kept = [number for number in range(len(in_order)) if number < quick or number % every == 0]
        if sum(seconds[number] for number in kept) <= effort.run_seconds:
            break
    plans = [in_order[number] for number in kept]
    return plans if any(plan.plan == chosen.plan for plan in plans) else [chosen, *plans]


def say(line: str) -> None:
    """Tell how far the loop has come."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()
