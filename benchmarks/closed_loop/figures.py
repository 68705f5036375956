"""Figures of merit of what was planned and run, and the goals that they are held against."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.closed_loop.models import Model
from benchmarks.closed_loop.plans import Predicted
from benchmarks.closed_loop.rounds import Ran
from benchmarks.closed_loop.scenarios import Scenario
from planner.validation.comparison import Comparison
from planner.validation.metrics import high_quantile, kendall_tau, median, pair_noise, share

MOST_TIME_ERROR: Final = 0.15
NOISE_FACTOR: Final = 2
"""The median error of the step time is that, or so many times the noise floor."""
LEAST_TAU: Final = 0.8
MOST_REGRET: Final = 0.05
MOST_MEMORY_ERROR: Final = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Trialled:
    """A model on the ranks of a scenario: every plan that was run, and the one that the planner chose."""

    scenario: Scenario
    model: Model
    chosen: Predicted
    ran: Sequence[Ran]
    num_legal: int

    @property
    def plans(self) -> list[Ran]:
        """The plans that were run, without copies of the control plan."""
        return [one for one in self.ran if not one.is_control]

    @property
    def name(self) -> str:
        """The scenario and the model."""
        return f"{self.scenario.name}: {self.model.name}"

    @property
    def noise(self) -> float:
        """How far two measurements of one plan differ, over the square root of two: the median over pairs."""
        # A later call may have had another plan for its control.
        controls: dict[str, list[float]] = {}
        for one in self.ran:
            if one.is_control:
                controls.setdefault(one.predicted.words, []).append(one.step_seconds)
        return median(pair_noise(controls.values())) or 0.0

    @property
    def best(self) -> Ran:
        """The plan that was measured fastest."""
        return min(self.plans, key=lambda one: one.step_seconds)

    @property
    def chosen_run(self) -> Ran | None:
        """The run of the plan that the planner chose; None where that has not run yet."""
        return next((one for one in self.plans if one.predicted.plan == self.chosen.plan), None)

    @property
    def regret(self) -> float | None:
        """How much longer than the best plan the chosen one took."""
        chosen = self.chosen_run
        return chosen.step_seconds / self.best.step_seconds - 1.0 if chosen else None

    def times(self) -> list[Comparison]:
        """Return predicted and measured step times."""
        return [_time(one) for one in self.plans]

    def peaks(self) -> list[Comparison]:
        """Return predicted and measured peaks of tensor bytes, of the stage that was worst predicted."""
        return [max(_peaks(one), key=lambda found: found.distance) for one in self.plans]

    def figures(self) -> dict[str, Any]:
        """Return the figures of merit."""
        return {"scenario": self.scenario.name, "model": self.model.name, **_figures([self])}


def overall(trialled: Sequence[Trialled]) -> dict[str, Any]:
    """Return the figures of merit of everything that was run."""
    return _figures(trialled)


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each goal with what was reached: name, figure, bound, and whether it is met."""
    bound = max(MOST_TIME_ERROR, NOISE_FACTOR * figures["noise"])
    rows = (
        ("median error of the step time", figures["time_median_error"], bound, True),
        ("Kendall's tau, the least of all", figures["least_tau"], LEAST_TAU, False),
        ("regret of the chosen plan, the most of all", figures["most_regret"], MOST_REGRET, True),
        ("median error of the peak", figures["peak_median_error"], MOST_MEMORY_ERROR, True),
    )
    return [
        {
            "goal": name,
            "figure": figure,
            "bound": limit,
            "at_most": is_most,
            "met": figure is not None and (figure <= limit if is_most else figure >= limit),
        }
        for name, figure, limit, is_most in rows
    ]


def choices(trialled: Sequence[Trialled]) -> Iterator[dict[str, Any]]:
    """Yield, for each model on so many ranks, what was chosen and what was best over each link."""
    for one in trialled:
        if one.scenario.ranks == 1:
            continue
        yield {
            "model": one.model.name,
            "ranks": one.scenario.ranks,
            "link": one.scenario.link.name,
            "chosen": one.chosen.words,
            "chosen_seconds": one.chosen_run.step_seconds if one.chosen_run else None,
            "best": one.best.predicted.words,
            "best_seconds": one.best.step_seconds,
            "same_kind": one.chosen.kind == one.best.predicted.kind,
        }


def rows_of(trialled: Trialled) -> list[dict[str, Any]]:
    """Return everything that was predicted and measured, plan by plan."""
    return [
        {
            "plan": one.predicted.words,
            "is_control": one.is_control,
            "predicted_seconds": one.predicted.prediction.step_time_seconds,
            "predicted_breakdown_seconds": asdict(one.predicted.prediction.breakdown_seconds),
            "predicted_interval_seconds": one.predicted.prediction.step_time_interval_seconds,
            "measured_seconds": one.step_seconds,
            "samples_seconds": list(one.measured.seconds),
            "passes_seconds": one.measured.passes_seconds,
            "update_seconds": one.measured.update_seconds,
            "predicted_peak_bytes": [stage.peak_allocated_bytes for stage in one.predicted.prediction.memory],
            "measured_peak_bytes": list(one.measured.peak_bytes),
            "process_bytes": one.measured.process_bytes,
        }
        for one in trialled.ran
    ]


def _figures(trialled: Sequence[Trialled]) -> dict[str, Any]:
    times = [found for one in trialled for found in one.times()]
    peaks = [abs(found.relative_error) for one in trialled for found in one.peaks()]
    errors = [abs(found.relative_error) for found in times]
    taus = [kendall_tau([one.times()]) or 0.0 for one in trialled]
    regrets = [one.regret for one in trialled if one.regret is not None]
    are_known = len(regrets) == len(trialled)
    return {
        "plans": len(times),
        "legal_plans": sum(one.num_legal for one in trialled),
        "noise": median([one.noise for one in trialled]),
        "time_median_error": median(errors),
        "time_p90_error": high_quantile(errors),
        "time_bias": median([found.relative_error for found in times]),
        "time_in_interval": share(found.is_covered for found in times),
        "kendall_tau": kendall_tau([one.times() for one in trialled]),
        "least_tau": min(taus),
        "regret": sum(regrets) / len(regrets) if are_known else None,
        "most_regret": max(regrets) if are_known else None,
        "peak_median_error": median(peaks),
        "peak_p90_error": high_quantile(peaks),
        "peaks_within_goal": share(error <= MOST_MEMORY_ERROR for error in peaks),
    }


def _time(one: Ran) -> Comparison:
    prediction = one.predicted.prediction
    low, high = prediction.step_time_interval_seconds
    return Comparison(predicted=prediction.step_time_seconds, measured=one.step_seconds, interval=(low, high))


def _peaks(one: Ran) -> Iterator[Comparison]:
    for stage, measured in zip(one.predicted.prediction.memory, one.measured.peak_bytes, strict=True):
        below, above = (bound - stage.peak_bytes for bound in stage.interval_bytes)
        predicted = stage.peak_allocated_bytes
        yield Comparison(
            predicted=predicted, measured=measured, interval=(predicted + below, predicted + above)
        )
