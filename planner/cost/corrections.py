"""What runs on one machine say of its kernels, links and host: a factor on each kind, and how sure it is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from planner.cluster import Device
from planner.cost.tally import Family
from planner.errors import InvalidRequest
from planner.pace import ProgramPace
from planner.profile import Estimate, Profile

FACT: Final = "calibration"
"""The fact of a profile that holds corrections."""


class Kind(StrEnum):
    """What is corrected by one factor."""

    MATRIX_PRODUCT = "matrix_product"
    ATTENTION = "attention"
    MEMORY_PASS = "memory_pass"  # noqa: S105 - a pass over memory
    OPTIMIZER = "optimizer"
    COLLECTIVE_INSIDE = "collective_inside"
    COLLECTIVE_BETWEEN = "collective_between"
    HOST = "host"


FAMILIES: Final[Mapping[Kind, Family]] = {
    Kind.MATRIX_PRODUCT: Family.MATRIX_PRODUCT,
    Kind.ATTENTION: Family.ATTENTION,
    Kind.MEMORY_PASS: Family.MEMORY_PASS,
    Kind.OPTIMIZER: Family.OPTIMIZER,
    Kind.COLLECTIVE_INSIDE: Family.COLLECTIVE,
    Kind.COLLECTIVE_BETWEEN: Family.COLLECTIVE,
    Kind.HOST: Family.OVERHEAD,
}
"""Under which family of errors a kind's seconds are booked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """The time of one kind in a running step over its predicted time.

    ``relative_error`` is one standard deviation. What runs say nothing of stays at 1 and is not
    ``informed``: its error is then what it was before.
    """

    factor: float = 1.0
    relative_error: float = 0.0
    informed: bool = False


UNKNOWN: Final = Correction()


@dataclass(frozen=True, kw_only=True, slots=True)
class Corrections:
    """The corrections of one machine; none where nobody calibrated it."""

    by_kind: Mapping[Kind, Correction] = field(default_factory=dict)
    correlations: Mapping[frozenset[Kind], float] = field(default_factory=dict)
    """Of two kinds' errors: what runs tell of a sum, one kind may take from another."""
    name: str = ""
    """Of the profile that holds them."""

    @classmethod
    def of(cls, device: Device, profiles: Iterable[Profile]) -> "Corrections":
        """Return the newest corrections among the profiles of a device.

        Raises InvalidRequest for a profile whose corrections are not of the form that a calibration writes.
        """
        own = [one for one in profiles if one.device == device.name and FACT in one.facts]
        newest = max(own, key=lambda profile: (_created(profile), profile.name), default=None)
        return NOTHING_CORRECTED if newest is None else corrections_in(newest)

    def __bool__(self) -> bool:
        """Whether any kind is corrected."""
        return any(one.informed or one.factor != 1.0 for one in self.by_kind.values())

    def of_kind(self, kind: Kind) -> Correction:
        """Return the correction of one kind."""
        return self.by_kind.get(kind, UNKNOWN)

    def factor(self, kind: Kind) -> float:
        """Return by what the time of a kind is multiplied."""
        return self.of_kind(kind).factor

    def applied(self, estimate: Estimate, kind: Kind) -> Estimate:
        """Return an estimate as it is in a running step; its error is the correction's where there is one."""
        if not self.by_kind:
            return estimate
        return replace(
            estimate,
            seconds=estimate.seconds * self.factor(kind),
            relative_error=self.error(kind, estimate.relative_error),
        )

    def error(self, kind: Kind, otherwise: float) -> float:
        """Return the relative error of a kind, ``otherwise`` where no run tells."""
        correction = self.of_kind(kind)
        return correction.relative_error if correction.informed else otherwise

    def paced(self, pace: ProgramPace) -> ProgramPace:
        """Return a program's pace with its host's times corrected."""
        factor = self.factor(Kind.HOST)
        return replace(
            pace,
            launch_seconds=pace.launch_seconds * factor,
            pipelined_launch_seconds=pace.pipelined_launch_seconds * factor,
            pass_seconds=pace.pass_seconds * factor,
            step_seconds=pace.step_seconds * factor,
        )

    def correlation(self, one: Family, other: Family) -> float:
        """Return how the errors of two families go together: of their kinds those that widen the most."""
        found = [
            value
            for kinds, value in self.correlations.items()
            if {FAMILIES[kind] for kind in kinds} == {one, other}
            and all(self.of_kind(kind).informed for kind in kinds)
        ]
        return 1.0 if one is other else max(found, default=0.0)


NOTHING_CORRECTED: Final = Corrections()


def corrections_document(corrections: Corrections) -> dict[str, Any]:
    """Return corrections as the facts of a profile hold them."""
    return {
        "kinds": [
            {
                "kind": kind.value,
                "factor": one.factor,
                "relative_error": one.relative_error,
                "informed": one.informed,
            }
            for kind, one in corrections.by_kind.items()
        ],
        "correlations": [
            {"kinds": sorted(kinds), "value": value} for kinds, value in corrections.correlations.items()
        ],
    }


def corrections_in(profile: Profile) -> Corrections:
    """Return what a profile corrects; InvalidRequest where its fact is not of the form."""
    fact = profile.facts[FACT]
    try:
        by_kind = {Kind(row["kind"]): _correction(row) for row in fact["kinds"]}
        correlations = {
            frozenset(map(Kind, row["kinds"])): min(max(float(row["value"]), -1.0), 1.0)
            for row in fact["correlations"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"the calibration in {profile.name} is not of the form that `meshplan profiles calibrate` "
            f"writes: {error!r}",
            pointer="/profiles",
        ) from error
    return Corrections(by_kind=by_kind, correlations=correlations, name=profile.name)


def _correction(row: Mapping[str, Any]) -> Correction:
    factor, error = float(row["factor"]), float(row["relative_error"])
    if not factor > 0 or not error >= 0:
        raise ValueError(f"factor {factor} and relative error {error} must be positive")
    return Correction(factor=factor, relative_error=error, informed=row["informed"] is True)


def _created(profile: Profile) -> str:
    fact = profile.facts[FACT]
    return str(fact.get("created_at", "")) if isinstance(fact, Mapping) else ""
