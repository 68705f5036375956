"""Plans run by turns on the ranks of a network, and a control plan among them again and again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.closed_loop.measurements import Measurement, key_of, measurement_of, together
from benchmarks.closed_loop.network import Network
from benchmarks.closed_loop.plans import Predicted
from benchmarks.closed_loop.processes import run_ranks
from profiler.trial.errors import PlanCannotRun
from profiler.trial.order import read_order

LOW_QUANTILE: Final = 0.25
"""Of the steps of one plan: what else runs on the machine only ever adds time."""
WARM_UP_STEPS: Final = 2
CONTROLS: Final = 4
"""Copies of the control plan in every round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """A plan with what was predicted and what was measured."""

    predicted: Predicted
    measured: Measurement

    @property
    def is_control(self) -> bool:
        """Whether this is a copy of the control plan."""
        return self.measured.is_control

    @property
    def step_seconds(self) -> float:
        """What a step takes where nothing disturbs it."""
        return low_quantile(self.measured.seconds)


def low_quantile(seconds: Sequence[float]) -> float:
    """Return the low quantile of some step times."""
    return float(np.quantile(seconds, LOW_QUANTILE))


def can_run(predicted: Predicted) -> bool:
    """Whether a trial has everything that a plan asks for."""
    try:
        read_order(predicted.order())
    except PlanCannotRun:
        return False
    return True


def run_plans(
    network: Network, plans: Sequence[Predicted], *, rounds: int, folder: Path
) -> list[Measurement]:
    """Run a step of every plan in turn, round after round; the control is the plan in the middle."""
    control = plans[len(plans) // 2]
    every = max(1, -(-len(plans) // CONTROLS))
    entries: list[tuple[Predicted, bool]] = []
    for number, plan in enumerate(plans):
        if number % every == 0:
            entries.append((control, True))
        entries.append((plan, False))
    paths = [folder / f"order-{number}.json" for number in range(len(entries))]
    for path, (plan, _) in zip(paths, entries, strict=True):
        path.write_text(json.dumps(plan.order()))
    output = folder / "measured.json"
    options = ["--steps", str(rounds), "--warm-up-steps", str(WARM_UP_STEPS), "--device", "cpu"]
    flags = ["--in-turn", "--without-reference", "--without-account"]
    arguments = [*map(str, paths), "--output", str(output), *options, *flags]
    run_ranks(network, "profiler.trial", arguments, log=folder / "trial.log")
    measured = json.loads(output.read_text())
    return [
        measurement_of(plan.order(), found, is_control=is_control)
        for (plan, is_control), found in zip(entries, measured, strict=True)
    ]


def joined_runs(plans: Sequence[Predicted], measurements: Sequence[Measurement]) -> list[Ran]:
    """Return what was measured of each plan that is given, and of each copy of the control plan."""
    by_key = {key_of(plan.order()): plan for plan in plans}
    known = [one for one in measurements if key_of(one.order) in by_key]
    return [Ran(predicted=by_key[key_of(one.order)], measured=one) for one in together(known)]
