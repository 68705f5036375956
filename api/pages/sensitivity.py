"""What a changed request comes to, against the plan that was chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.pages.plan_words import plan_line
from api.pages.quantities import seconds_scale, signed_percent
from api.pages.request_summary import words

SAME: Final = "the same"
NO_PLAN: Final = {"infeasible": "nothing fits", "unknown": "no plan in time"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SensitivityRow:
    """One changed request."""

    why: str
    step_time: str
    change: str
    plan: str


def sensitivity_rows(document: Mapping[str, Any]) -> tuple[SensitivityRow, ...]:
    """Return what changed requests come to; nothing where nobody asked."""
    return tuple(map(_row, document.get("sensitivity") or ()))


def _row(entry: Mapping[str, Any]) -> SensitivityRow:
    seconds, plan = entry["step_time_seconds"], entry["plan"]
    why = words(entry["why"])
    if seconds is None or plan is None:
        return SensitivityRow(why=why, step_time="", change="", plan=NO_PLAN[entry["status"]])
    return SensitivityRow(
        why=why,
        step_time=str(seconds_scale(seconds).quantity(seconds)),
        change=signed_percent(entry["relative_change"]),
        plan=plan_line(plan) if entry["changes_plan"] else SAME,
    )
