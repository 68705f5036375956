"""The accuracy report as a page of its own: tables, and a scatter plot of every file."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from api.cli.accuracy_tables import described_parts, described_plan, described_run, percent
from api.cli.scatter import Plot, scatter_of
from api.version import VERSION
from planner.units import GIBIBYTE, format_seconds
from planner.validation.comparison import Comparison, memory_comparison, step_time_comparison
from planner.validation.evaluation import Outcome
from planner.validation.folder import Files


def accuracy_page(files: Files, document: Mapping[str, Any]) -> str:
    """Return the page as HTML that needs nothing else."""
    environment = Environment(
        loader=PackageLoader("api"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["percent"] = percent
    return environment.get_template("accuracy.html").render(
        version=VERSION, document=document, plots=tuple(_plots(files))
    )


def _plots(files: Files) -> Iterator[Plot]:
    for name, outcomes in files.items():
        times = [(outcome, found) for outcome in outcomes if (found := step_time_comparison(outcome))]
        if times:
            yield _plot(f"{name}: step time", times, shown=format_seconds)
        sizes = [(outcome, found) for outcome in outcomes if (found := memory_comparison(outcome))]
        if sizes:
            in_gibibytes = [(outcome, found.scaled(1 / GIBIBYTE)) for outcome, found in sizes]
            yield _plot(f"{name}: peak memory", in_gibibytes, shown=lambda size: f"{size:.3g} GiB")


def _plot(title: str, compared: list[tuple[Outcome, Comparison]], *, shown: Callable[[float], str]) -> Plot:
    return Plot(
        title=title,
        scatter=scatter_of([found for _, found in compared], shown=shown),
        notes=tuple(_note(outcome, found, shown) for outcome, found in compared),
    )


def _note(outcome: Outcome, found: Comparison, shown: Callable[[float], str]) -> str:
    return (
        f"line {outcome.row.line}: {described_run(outcome)}\n{described_plan(outcome)}\n"
        f"measured {shown(found.measured)}, predicted {shown(found.predicted)} "
        f"({percent(found.relative_error, signed=True)})\n{described_parts(outcome)}"
    )
