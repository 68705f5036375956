"""The accuracy report as tables: a line for every file, reasons and assumptions, the worst rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from api.cli.tables import write_table
from planner.units import format_seconds
from planner.validation.comparison import step_time_comparison
from planner.validation.evaluation import Outcome

NOTHING: Final = "-"
SMALLEST_PART: Final = 0.02
"""Parts of a predicted step below this share are not listed."""
PERCENT: Final = 100.0

STEP_TIME_HEADERS: Final = (
    "step time", "rows", "timed", "median", "p90", "bias", "in 80 %", "tau", "regret", "noise"
)  # fmt: skip
MEMORY_HEADERS: Final = ("memory", "rows", "median", "p90", "bias", "in 80 %", "5 % under", "fits called")
PLAN_COLUMNS: Final = ("tp", "pp", "vpp", "cp", "dp", "mbs", "gbs", "zero_stage", "seq_parallel", "recompute")


def write_accuracy(document: Mapping[str, Any]) -> None:
    """Write the tables of a whole report."""
    files: Mapping[str, Mapping[str, Any]] = {**document["files"], "all": document["all"]}
    write_table(STEP_TIME_HEADERS, _step_time_lines(files))
    click.echo()
    write_table(MEMORY_HEADERS, _memory_lines(files))
    click.echo()
    write_table(STEP_TIME_HEADERS, _step_time_lines(document["all"]["parts"]))
    click.echo()
    write_table(("skipped for", "rows", "in files"), _skipped_lines(document["files"]))
    click.echo()
    write_table(
        ("assumed", "rows"), [(name, f"{count}") for name, count in document["all"]["assumed"].items()]
    )


def write_worst(outcomes: Sequence[Outcome]) -> None:
    """Write the rows predicted worst: what ran, both times, and where the predicted one goes."""
    click.echo()
    headers = ("row", "model and machines", "plan", "measured", "predicted", "error", "predicted parts")
    write_table(headers, map(_worst_line, outcomes))


def _step_time_lines(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for name, report in reports.items():
        times, noise = report["step_time"], report["noise"]
        if times["rows"]:
            yield (
                name,
                f"{report['rows']}",
                f"{times['rows']}",
                percent(times["median_abs_error"]),
                percent(times["p90_abs_error"]),
                percent(times["bias"], signed=True),
                percent(times["interval_coverage"]),
                NOTHING if times["kendall_tau"] is None else f"{times['kendall_tau']:.2f}",
                percent(times["regret"]),
                percent(noise["median"]),
            )


def _memory_lines(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for name, report in reports.items():
        memory, fits = report["memory"], report["fits"]
        if memory["rows"] or fits["rows"]:
            yield (
                name,
                f"{memory['rows']}",
                percent(memory["median_abs_error"]),
                percent(memory["p90_abs_error"]),
                percent(memory["bias"], signed=True),
                percent(memory["interval_coverage"]),
                percent(memory["underestimated_over_5_percent"]),
                f"{fits['true_fit'] + fits['true_oom']} of {fits['rows']}",
            )


def _skipped_lines(files: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    found: dict[str, dict[str, int]] = {}
    for name, report in files.items():
        for reason, count in report["skipped"].items():
            found.setdefault(reason, {})[name] = count
    ranked = sorted(found.items(), key=lambda entry: -sum(entry[1].values()))
    return [(reason, f"{sum(where.values())}", ", ".join(where)) for reason, where in ranked]


def _worst_line(outcome: Outcome) -> tuple[str, ...]:
    times = step_time_comparison(outcome)
    assert times is not None
    return (
        f"{outcome.row.file}:{outcome.row.line}",
        described_run(outcome),
        described_plan(outcome),
        format_seconds(times.measured),
        format_seconds(times.predicted),
        percent(times.relative_error, signed=True),
        described_parts(outcome),
    )


def described_run(outcome: Outcome) -> str:
    """Return what ran where: model, devices, framework and precision."""
    text = outcome.row.text
    return f"{text('model')}, {text('gpus')} x {text('device')}, {text('framework')} {text('precision')}"


def described_plan(outcome: Outcome) -> str:
    """Return the columns of the plan that the row fills."""
    return _words((name, outcome.row.text(name)) for name in PLAN_COLUMNS)


def described_parts(outcome: Outcome) -> str:
    """Return where the predicted step time goes, in percent of it."""
    assert outcome.prediction is not None
    whole = outcome.prediction.step_time_seconds
    parts = asdict(outcome.prediction.breakdown_seconds)
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    return _words(
        (name, percent(seconds / whole)) for name, seconds in ranked if seconds >= SMALLEST_PART * whole
    )


def percent(fraction: float | None, *, signed: bool = False) -> str:
    """Return a share for people."""
    if fraction is None:
        return NOTHING
    return f"{PERCENT * fraction:+.1f} %" if signed else f"{PERCENT * fraction:.1f} %"


def _words(pairs: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{name} {value}," for name, value in pairs if value).removesuffix(",")
