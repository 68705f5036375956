"""The fitted parameters as a table and as data: what each is, what it rests on and what it is worth."""

from collections.abc import Sequence
from typing import Any

import click

from api.cli.accuracy_tables import percent
from api.cli.tables import write_table
from planner.footprints import FOOTPRINT_EFFECTS
from planner.parameters import EFFECTS
from planner.validation.ablation import Ablation

ALL_EFFECTS = {**EFFECTS, **FOOTPRINT_EFFECTS}
HEADERS = (
    "parameter", "value", "neutral", "unit", "rests on", "runs", "error", "p90", "if neutral", "p90"
)  # fmt: skip


def write_parameters(worth: Sequence[Ablation]) -> None:
    """Write a line for every parameter that some run rests on."""
    click.echo()
    write_table(HEADERS, map(_line, worth))


def parameters_document(worth: Sequence[Ablation]) -> list[dict[str, Any]]:
    """Return the same as plain data; errors are absolute relative errors."""
    return [
        {
            "program": one.parameter.program,
            "effect": one.parameter.effect,
            "value": one.parameter.value,
            "neutral": one.parameter.neutral,
            "unit": ALL_EFFECTS[one.parameter.effect].unit,
            "meaning": ALL_EFFECTS[one.parameter.effect].meaning,
            "rests_on": one.parameter.rests_on,
            "runs": one.runs,
            "median_abs_error": one.error.median,
            "p90_abs_error": one.error.p90,
            "neutral_median_abs_error": one.neutral.median,
            "neutral_p90_abs_error": one.neutral.p90,
        }
        for one in worth
    ]


def _line(one: Ablation) -> tuple[str, ...]:
    parameter = one.parameter
    return (
        f"{parameter.program} {parameter.effect}",
        f"{parameter.value:g}",
        f"{parameter.neutral:g}",
        ALL_EFFECTS[parameter.effect].unit,
        parameter.rests_on,
        f"{one.runs}",
        percent(one.error.median),
        percent(one.error.p90),
        percent(one.neutral.median),
        percent(one.neutral.p90),
    )
