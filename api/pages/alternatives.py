"""Other plans worth knowing, and what each costs against the one that was chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.pages.memory_chart import worst_stage
from api.pages.plan_words import plan_line
from api.pages.quantities import bytes_scale, seconds_scale, signed_percent


@dataclass(frozen=True, kw_only=True, slots=True)
class AlternativeRow:
    """One other plan."""

    why: str
    plan: str
    step_time: str
    change: str
    is_tie: bool
    """Whether the difference drowns in the interval of the chosen plan."""
    peak: str


def alternative_rows(document: Mapping[str, Any]) -> tuple[AlternativeRow, ...]:
    """Return the alternatives of a result document."""
    prediction = document.get("prediction")
    if not prediction:
        return ()
    return tuple(_row(alternative, prediction) for alternative in document.get("alternatives") or ())


def _row(alternative: Mapping[str, Any], chosen: Mapping[str, Any]) -> AlternativeRow:
    own = alternative["prediction"]
    seconds = own["step_time_seconds"]
    memory = own.get("memory") or ()
    peak = worst_stage(memory)["peak_bytes"] if memory else None
    return AlternativeRow(
        why=alternative["why"],
        plan=plan_line(alternative["plan"]),
        step_time=str(seconds_scale(seconds).quantity(seconds)),
        change=signed_percent(seconds / chosen["step_time_seconds"] - 1),
        is_tie=seconds <= chosen["step_time_interval_seconds"][1],
        peak=str(bytes_scale(peak).quantity(peak)) if peak is not None else "",
    )
