"""Seconds by cause, by provenance and by family of error: what every duration is made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from planner.profile import Estimate, Provenance
from planner.units import NANOSECONDS_PER_SECOND, Seconds


class Cause(StrEnum):
    """Why time passes; the words of the prediction's breakdown."""

    COMPUTE = "compute"
    RECOMPUTE = "recompute"
    TENSOR_PARALLEL = "tensor_parallel"
    CONTEXT_PARALLEL = "context_parallel"
    EXPERT_PARALLEL = "expert_parallel"
    PIPELINE = "pipeline"
    DATA_PARALLEL = "data_parallel"
    OFFLOAD = "offload"
    BUBBLE = "bubble"
    OPTIMIZER = "optimizer"
    OVERHEAD = "overhead"


AXIS_CAUSES: Final[Mapping[str, Cause]] = {
    "tensor_parallel": Cause.TENSOR_PARALLEL,
    "context_parallel": Cause.CONTEXT_PARALLEL,
    "expert_parallel": Cause.EXPERT_PARALLEL,
    "expert_tensor_parallel": Cause.EXPERT_PARALLEL,
}
"""What a collective inside a layer is booked under, by its axis."""


class Family(StrEnum):
    """Figures that err together: one kind of kernel, or one kind of link."""

    MATRIX_PRODUCT = "matrix_product"
    ATTENTION = "attention"
    MEMORY_PASS = "memory_pass"  # noqa: S105 - a pass over memory
    COLLECTIVE = "collective"
    OPTIMIZER = "optimizer"
    HOST = "host"
    OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True)
class Tally:
    """An amount of time with its parts. ``error_seconds`` is one standard deviation per family."""

    causes: Mapping[Cause, Seconds] = field(default_factory=dict)
    provenance: Mapping[Provenance, Seconds] = field(default_factory=dict)
    error_seconds: Mapping[Family, Seconds] = field(default_factory=dict)

    @property
    def seconds(self) -> Seconds:
        """The whole amount: the sum over causes."""
        return sum(self.causes.values())

    @property
    def nanoseconds(self) -> int:
        """The whole amount, rounded to the grid of the replay."""
        return round(self.seconds * NANOSECONDS_PER_SECOND)

    def __add__(self, other: "Tally") -> "Tally":
        """Return both amounts, one after the other."""
        return total((self, other))

    def times(self, factor: float) -> "Tally":
        """Return the amount ``factor`` times; errors of equal work are fully correlated."""
        return Tally(
            {key: value * factor for key, value in self.causes.items()},
            {key: value * factor for key, value in self.provenance.items()},
            {key: value * factor for key, value in self.error_seconds.items()},
        )

    def recast(self, cause: Cause, *, keep: Iterable[Cause] = ()) -> "Tally":
        """Return the same amount booked under one cause, but for the causes to keep."""
        kept = frozenset(keep)
        causes: dict[Cause, Seconds] = {}
        for key, value in self.causes.items():
            target = key if key in kept else cause
            causes[target] = causes.get(target, 0.0) + value
        return Tally(causes, self.provenance, self.error_seconds)


NOTHING: Final = Tally()

CONTENTION_FRACTION: Final = 0.15
"""Slowdown of work per second of communication beside it: NCCL takes 10 to 20 of 108 to 148 multiprocessors.

No published measurement of it is at hand: a stated guess, where a machine's own profile does not say.
"""


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of amounts; errors within a family add up, as kernels of a kind err together."""
    parts = [tally for tally in tallies if tally.causes]
    if len(parts) < 2:  # noqa: PLR2004 - one amount is its own sum
        return parts[0] if parts else NOTHING
    first = parts[0]
    causes, provenance, errors = dict(first.causes), dict(first.provenance), dict(first.error_seconds)
    for tally in parts[1:]:
        for cause, seconds in tally.causes.items():
            causes[cause] = causes.get(cause, 0.0) + seconds
        for origin, seconds in tally.provenance.items():
            provenance[origin] = provenance.get(origin, 0.0) + seconds
        for family, seconds in tally.error_seconds.items():
            errors[family] = errors.get(family, 0.0) + seconds
    return Tally(causes, provenance, errors)


def least(tallies: Iterable[Tally]) -> Tally:
    """Return the smallest of amounts, the first of equal ones."""
    return min(tallies, key=lambda tally: tally.seconds)


def booked(estimate: Estimate, *, cause: Cause, family: Family) -> Tally:
    """Return an estimate as an amount with one cause."""
    if not estimate.seconds:
        return NOTHING
    return Tally(
        {cause: estimate.seconds},
        {estimate.provenance: estimate.seconds},
        {family: estimate.seconds * estimate.relative_error},
    )


def exposed(
    communication: Tally, *, behind_seconds: Seconds, contention_fraction: float = CONTENTION_FRACTION
) -> Tally:
    """Return what a communication that runs beside ``behind_seconds`` of work adds to it.

    What the work does not cover stands by itself; what it covers slows it down, for both share the
    multiprocessors and the memory.
    """
    seconds = communication.seconds
    covered = min(seconds, behind_seconds)
    added = seconds - covered + contention_fraction * covered
    return communication.times(added / seconds) if added else NOTHING


def constant(seconds: Seconds, *, cause: Cause, relative_error: float) -> Tally:
    """Return a fixed amount that no measurement backs."""
    estimate = Estimate(seconds=seconds, provenance=Provenance.DATASHEET, relative_error=relative_error)
    return booked(estimate, cause=cause, family=Family.OVERHEAD)
