"""One predicted figure beside the measured one."""

from dataclasses import dataclass
from math import log

from planner.plan import StageMemory
from planner.validation.evaluation import Outcome
from planner.validation.measured import MemoryKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A prediction with its 80 % interval and the measurement, in the same unit; all are positive."""

    predicted: float
    measured: float
    interval: tuple[float, float]

    @property
    def relative_error(self) -> float:
        """The error as a share of the measurement; negative where too little was predicted."""
        return self.predicted / self.measured - 1.0

    @property
    def is_covered(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.interval[0] <= self.measured <= self.interval[1]

    @property
    def distance(self) -> float:
        """How far apart both are, equally for twice as much and half as much: |ln(predicted / measured)|."""
        return abs(log(self.predicted / self.measured))

    def scaled(self, factor: float) -> "Comparison":
        """Return the same comparison in another unit."""
        low, high = self.interval
        return Comparison(
            predicted=self.predicted * factor,
            measured=self.measured * factor,
            interval=(low * factor, high * factor),
        )


def step_time_comparison(outcome: Outcome) -> Comparison | None:
    """Return the step times of a row in seconds; None where either is missing."""
    measured, prediction = outcome.measured.step_time_seconds, outcome.prediction
    if measured is None or prediction is None:
        return None
    return Comparison(
        predicted=prediction.step_time_seconds,
        measured=measured,
        interval=prediction.step_time_interval_seconds,
    )


def memory_comparison(outcome: Outcome) -> Comparison | None:
    """Return the peak memory in bytes of the stage that the row prints, counted as the row counts it."""
    measured, prediction = outcome.measured.peak_memory_bytes, outcome.prediction
    if measured is None or prediction is None:
        return None
    kind = outcome.measured.memory_kind
    printed = prediction.memory[:1] if outcome.measured.is_of_first_stage else prediction.memory
    fullest = max(printed, key=lambda stage: _counted_bytes(stage, kind))
    predicted = _counted_bytes(fullest, kind)
    apart = fullest.peak_bytes - predicted
    low, high = fullest.interval_bytes
    return Comparison(predicted=predicted, measured=measured, interval=(low - apart, high - apart))


def fit_comparison(outcome: Outcome) -> tuple[bool, bool] | None:
    """Return whether a row was predicted to fit, and whether it did.

    None where either is unknown, the size of the device's memory among it.
    """
    question = outcome.question
    if outcome.measured.fits is None or outcome.prediction is None or question is None:
        return None
    if "device_mem_gib" in question.assumed:
        return None
    return outcome.prediction.fits, outcome.measured.fits


def _counted_bytes(stage: StageMemory, kind: MemoryKind) -> float:
    match kind:
        case MemoryKind.ALLOCATED:
            return stage.peak_allocated_bytes
        case MemoryKind.RESERVED:
            return stage.peak_reserved_bytes
        case MemoryKind.WHOLE:
            return stage.peak_bytes
