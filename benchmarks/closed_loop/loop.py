"""Profile, plan, run and compare, scenario by scenario."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.closed_loop.figures import Trialled
from benchmarks.closed_loop.models import Model
from benchmarks.closed_loop.network import Network, joined
from benchmarks.closed_loop.plans import Predicted, legal_plans, planned, request_for
from benchmarks.closed_loop.profiles import Document, measured_profile
from benchmarks.closed_loop.rounds import WARM_UP_STEPS, can_run, run_plans
from benchmarks.closed_loop.scenarios import Scenario
from planner.profile import Profile

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


def run_loop(scenarios: Sequence[Scenario], effort: Effort, *, folder: Path) -> Iterator[Trialled]:
    """Yield what came of each model of each scenario."""
    kernels: dict[int, Document] = {}
    for scenario in scenarios:
        own = folder / scenario.slug
        own.mkdir(parents=True, exist_ok=True)
        with joined(scenario.link, ranks=scenario.ranks) as network:
            known = kernels.get(scenario.ranks)
            say(f"{scenario.name}: profiling{' the link' if known else ''}")
            document = measured_profile(
                network,
                scenario.models,
                folder=own,
                seconds=effort.link_seconds if known else effort.kernel_seconds,
                kernels_of=known,
            )
            kernels.setdefault(scenario.ranks, document)
            for model in scenario.models:
                yield _trialled(scenario, network, model, document, effort, folder=own)


def _trialled(
    scenario: Scenario, network: Network, model: Model, document: Document, effort: Effort, *, folder: Path
) -> Trialled:
    request = request_for(model, Profile.from_document(document), ranks=network.ranks)
    legal = [plan for plan in legal_plans(request, model) if can_run(plan)]
    chosen = _on_all_ranks(planned(request, model), legal, ranks=network.ranks)
    wanted = [plan for plan in legal if not scenario.only or plan.words in scenario.only]
    plans = _affordable(wanted, chosen, effort)
    say(f"{scenario.name}, {model.name}: running {len(plans)} of {len(legal)} legal plans")
    own = folder / model.name
    own.mkdir(exist_ok=True)
    ran = run_plans(network, plans, rounds=effort.rounds, folder=own)
    return Trialled(scenario=scenario, model=model, chosen=chosen, ran=ran, num_legal=len(legal))


def _on_all_ranks(chosen: Predicted, legal: Sequence[Predicted], *, ranks: int) -> Predicted:
    """Return the planner's plan; where it leaves ranks idle, the one on all of them predicted quickest.

    The ranks of a scenario run their plans in turn, so each plan needs all of them.
    """
    if chosen.plan.mesh.world_size == ranks:
        return chosen
    return min(legal, key=lambda plan: plan.prediction.step_time_seconds)


def _affordable(legal: Sequence[Predicted], chosen: Predicted, effort: Effort) -> list[Predicted]:
    """Return the plans that can be run in the time, the chosen one among them: every n-th by step time."""
    in_order = sorted(legal, key=lambda plan: plan.prediction.step_time_seconds)
    steps = effort.rounds + WARM_UP_STEPS + WATCHED_STEPS
    for every in range(1, len(in_order) + 1):
        kept = in_order[::every]
        if steps * sum(plan.prediction.step_time_seconds for plan in kept) <= effort.run_seconds:
            break
    return kept if any(plan.plan == chosen.plan for plan in kept) else [chosen, *kept]


def say(line: str) -> None:
    """Tell how far the loop has come."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()
