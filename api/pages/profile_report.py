"""A profile as a page: its curves with what lies off them, what it covers, and what was odd."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from api.pages.curve_plot import plot_of
from planner.profile import Profile
from planner.profile_check import LeftOut
from planner.profile_fit import Curve, fit_profile
from planner.units import format_count, format_seconds


def report_context(profile: Profile, *, left_out: Sequence[LeftOut] = ()) -> dict[str, object]:
    """Return what the template of a report shows; ``left_out`` are errors of rows found from the others."""
    curves = fit_profile(profile)
    overlaps = profile.facts.get("overlaps", ())
    return {
        "profile": profile,
        "facts": _plain(profile.facts) + _plain(profile.software),
        "coverage": _coverage(profile),
        "curves": [described(curve) for curve in curves],
        "plots": [plot_of(curve) for curve in curves],
        "left_out": [_error(error) for error in left_out],
        "ranks": profile.facts.get("ranks", ()),
        "overlaps": [_overlap(row) for row in overlaps],
        "skipped": profile.facts.get("skipped", ()),
    }


def described(curve: Curve) -> tuple[str, ...]:
    """Return a curve for people: its kind, rows, start, rate, and how far measurements lie from it."""
    rate = curve.per_second
    return (
        curve.kind,
        str(len(curve.points)),
        format_seconds(curve.start_seconds) if curve.start_seconds else "",
        f"{format_count(rate)}{curve.unit}/s" if rate else "",
        f"{curve.median_abs_residual:.1%}",
        f"{curve.p90_abs_residual:.1%}",
        f"{curve.worst.label} ({curve.worst.residual:+.0%})",
    )


def _plain(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is said in one word; lists and tables have places of their own."""
    return [(key, str(value)) for key, value in facts.items() if isinstance(value, str | int | float)]


def _coverage(profile: Profile) -> list[tuple[str, str, str]]:
    """Return what was measured, how often, and from which size to which."""
    kernels = [
        (f"{table.operator} {table.dtype} {table.phase}", str(len(table)), _range(table.shapes.prod(axis=1)))
        for table in profile.kernels
    ]
    links: dict[str, list[float]] = {}
    for row in profile.collectives:
        links.setdefault(f"{row.operation}, {row.world_size} ranks", []).append(row.payload_bytes)
    copies = Counter(row.operation for row in profile.transfers)
    return [
        *kernels,
        *((name, str(len(sizes)), f"{_range(sizes)}B") for name, sizes in sorted(links.items())),
        *((name, str(number), "") for name, number in sorted(copies.items())),
    ]


def _range(sizes: Sequence[float]) -> str:
    least, most = float(min(sizes)), float(max(sizes))
    return format_count(least) if least == most else f"{format_count(least)} to {format_count(most)}"


def _error(error: LeftOut) -> tuple[str, ...]:
    figures = (f"{error.median_abs_error:.1%}", f"{error.p90_abs_error:.1%}", f"{error.bias:+.1%}")
    return error.kind, str(error.rows), *figures


def _overlap(row: Mapping[str, Any]) -> tuple[str, ...]:
    times = (
        row[f"{what}_seconds_{when}"] for what in ("collective", "kernels") for when in ("alone", "together")
    )
    collective = row["collective"]
    return f"{collective['operation']}, {collective['world_size']} ranks", *map(format_seconds, times)
