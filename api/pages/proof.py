"""What backs an answer: the certificate of the search, and where the figures come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.pages.quantities import PERCENT_SCALE, count, magnitude, percent, seconds_scale
from api.pages.request_summary import words
from api.pages.stacked_bar import Segment, stack
from planner.units import format_seconds

NOTHING: Final = "\N{EN DASH}"
PROVENANCE: Final[Mapping[str, str]] = {
    "measured": "measured at exactly this shape",
    "interpolated": "interpolated between measurements",
    "datasheet": "from the datasheet alone",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificateView:
    """How the search ended, in words and numbers."""

    headline: str
    value: str
    lower_bound: str
    gap: str
    meshes: str
    plans_in_space: str
    solve_time: str
    dimensions: tuple[tuple[str, tuple[str, ...]], ...]
    """How dimensions were decided, and which; the searched ones first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvenanceView:
    """Shares of the predicted time by where its figures come from, and the measurements used."""

    segments: tuple[Segment, ...]
    shares: tuple[tuple[str, str, str], ...]
    """Key, share, meaning."""
    profiles: tuple[tuple[str, str], ...]
    """Name and the beginning of its digest."""


def certificate_view(certificate: Mapping[str, Any] | None) -> CertificateView | None:
    """Return the certificate of a result, or None for an evaluation."""
    if not certificate:
        return None
    meshes, plans = certificate["meshes"], certificate["plans_in_space"]
    value, bound = certificate["value"], certificate["lower_bound"]
    return CertificateView(
        headline=_headline(certificate),
        value=NOTHING if value is None else _in_unit(value, certificate["unit"]),
        lower_bound=_in_unit(bound, certificate["unit"]),
        gap=NOTHING if certificate["relative_gap"] is None else percent(certificate["relative_gap"]),
        meshes=f"{count(meshes['total'])}: {count(meshes['pruned'])} ruled out by a bound, "
        f"{count(meshes['solved'])} solved exactly",
        plans_in_space="too many to count" if plans is None else magnitude(plans),
        solve_time=format_seconds(certificate["solve_seconds"]),
        dimensions=_dimensions(certificate["dimensions"]),
    )


def provenance_view(document: Mapping[str, Any]) -> ProvenanceView | None:
    """Return where the figures of a result come from, or None where nothing is predicted."""
    prediction = document.get("prediction")
    if not prediction:
        return None
    shares: Mapping[str, float] = prediction["provenance"]
    numbers = PERCENT_SCALE.parts(list(shares.values()))
    return ProvenanceView(
        segments=stack(shares, full=sum(shares.values())),
        shares=tuple(
            (key, f"{number}\N{NO-BREAK SPACE}%", PROVENANCE.get(key, words(key)))
            for key, number in zip(shares, numbers, strict=True)
        ),
        profiles=tuple(
            (profile["name"], profile["digest"][:12]) for profile in document.get("profiles") or ()
        ),
    )


def _dimensions(decided: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    ways = sorted(dict.fromkeys(decided.values()), key=lambda how: not how.startswith("searched"))
    return tuple(
        (how, tuple(words(name) for name, decision in decided.items() if decision == how)) for how in ways
    )


def _in_unit(value: float, unit: str) -> str:
    return str(seconds_scale(value).quantity(value)) if unit == "s" else f"{value:.4g} {unit}"


def _headline(certificate: Mapping[str, Any]) -> str:
    gap = certificate["relative_gap"]
    if certificate["value"] is None:
        return "No plan of the space described here was found."
    if not certificate["proven_optimal"]:
        left = "" if gap is None else f", so at most {percent(gap)} are left to gain"
        return f"The search was cut short: no plan is below the bound{left}."
    within = f" by more than {percent(gap)}" if gap else ""
    return f"Under these cost tables, no plan of the space described here is faster{within}."
