"""Plans run by turns on the ranks of a network, and a control plan among them again and again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

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
    seconds: Sequence[float]
    """Of each step."""
    peak_bytes: Sequence[float]
    """Of live tensors, of each stage."""
    process_bytes: float
    """Of the largest process of all, everything in it counted."""
    is_control: bool

    @property
    def step_seconds(self) -> float:
        """What a step takes where nothing disturbs it."""
        return low_quantile(self.seconds)


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


def run_plans(network: Network, plans: Sequence[Predicted], *, rounds: int, folder: Path) -> list[Ran]:
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
        _ran(plan, found, is_control=control)
        for (plan, control), found in zip(entries, measured, strict=True)
    ]


def _ran(plan: Predicted, found: dict[str, Any], *, is_control: bool) -> Ran:
    memory = [stage["memory_bytes"] for stage in found["stages"]]
    return Ran(
        predicted=plan,
        seconds=found["step_time"]["samples_seconds"],
        peak_bytes=[stage["peak_allocated"] for stage in memory],
        process_bytes=max(stage["process"] for stage in memory),
        is_control=is_control,
    )
