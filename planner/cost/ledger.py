"""How the times of one layer's operators are added up, whatever kind of number they are.

A layer is timed once for its causes and errors (`Tally`), or for many micro-batch sizes at once (`Sweep`):
the same steps, by different books.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

from planner.cost.tally import Cause, Family, Tally, booked, constant, exposed, total
from planner.profile import Estimate
from planner.units import Seconds

LAUNCH_RELATIVE_ERROR: Final = 0.3
"""How far a host's launch time per kernel strays between hosts (no measurement: a stated guess)."""


class Scalable(Protocol):
    """The time of one kernel or collective."""

    def scaled(self, factor: float) -> Self:
        """Return the time of ``factor`` times the work."""
        ...


class Countable(Protocol):
    """An amount of time; its ``seconds`` are one number, or one for each of several micro-batch sizes."""

    @property
    def seconds(self) -> Any:  # noqa: ANN401 - a number or an array
        """The whole amount."""
        ...


Timed = TypeVar("Timed", bound=Scalable)
Timed_co = TypeVar("Timed_co", bound=Scalable, covariant=True)
Timed_contra = TypeVar("Timed_contra", bound=Scalable, contravariant=True)
Amount = TypeVar("Amount", bound=Countable)


class Ledger(Protocol[Timed_contra, Amount]):
    """Makes amounts of timed kernels and adds them up."""

    def booked(self, timed: Timed_contra, *, cause: Cause, family: Family) -> Amount:
        """Return a timed kernel as an amount."""
        ...

    def total(self, amounts: Iterable[Amount]) -> Amount:
        """Return the sum of amounts."""
        ...

    def exposed(
        self,
        communication: Amount,
        *,
        behind_seconds: Any,  # noqa: ANN401 - a number or an array
        contention_fraction: float,
    ) -> Amount:
        """Return what a communication beside so many seconds of work adds to it."""
        ...

    def recast(self, amount: Amount, cause: Cause, *, keep: Iterable[Cause]) -> Amount:
        """Return an amount booked under one cause, but for the causes to keep."""
        ...

    def launched(self, work: Amount, *, host_seconds: Seconds, serial_fraction: float) -> Amount:
        """Return work stretched to the time in which the host launches it, or by a part of that time."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Tallies:
    """Amounts with their causes, provenance and errors."""

    launch_relative_error: float = LAUNCH_RELATIVE_ERROR

    def booked(self, timed: Estimate, *, cause: Cause, family: Family) -> Tally:
        """Return an estimate as an amount with one cause."""
        return booked(timed, cause=cause, family=family)

    def total(self, amounts: Iterable[Tally]) -> Tally:
        """Return the sum of amounts."""
        return total(amounts)

    def exposed(self, communication: Tally, *, behind_seconds: Seconds, contention_fraction: float) -> Tally:
        """Return what a communication beside so many seconds of work adds to it."""
        return exposed(communication, behind_seconds=behind_seconds, contention_fraction=contention_fraction)

    def recast(self, amount: Tally, cause: Cause, *, keep: Iterable[Cause]) -> Tally:
        """Return an amount booked under one cause, but for the causes to keep."""
        return amount.recast(cause, keep=keep)

    def launched(self, work: Tally, *, host_seconds: Seconds, serial_fraction: float) -> Tally:
        """Return work stretched to the time in which the host launches it, or by a part of that time."""
        missing = max(host_seconds - work.seconds, serial_fraction * host_seconds)
        if missing <= 0:
            return work
        return work + constant(missing, cause=Cause.OVERHEAD, relative_error=self.launch_relative_error)


TALLIES: Final = Tallies()
