"""The loop's figures as a page of its own: goals, choices by link, and a scatter plot of every run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

from api.cli.accuracy_tables import percent
from api.cli.scatter import Plot, scatter_of
from benchmarks.closed_loop.figures import Trialled
from planner.units import format_seconds
from planner.validation.comparison import Comparison

MEBIBYTE = 2**20


def write_page(path: Path, document: dict[str, Any], trialled: Sequence[Trialled]) -> None:
    """Write the page as HTML that needs nothing else."""
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(Path(__file__).parent), PackageLoader("api")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["seconds"] = format_seconds
    plots = [plot for one in trialled for plot in (_times(one), _peaks(one))]
    path.write_text(environment.get_template("page.html").render(document=document, plots=plots))


def _times(one: Trialled) -> Plot:
    compared = one.times()
    return Plot(
        title=f"{one.name}: step time",
        scatter=scatter_of(compared, shown=format_seconds),
        notes=tuple(_note(one, number, found, "s") for number, found in enumerate(compared)),
    )


def _peaks(one: Trialled) -> Plot:
    compared = [found.scaled(1 / MEBIBYTE) for found in one.peaks()]
    return Plot(
        title=f"{one.name}: peak of tensors",
        scatter=scatter_of(compared, shown=lambda size: f"{size:.3g} MiB"),
        notes=tuple(_note(one, number, found, "MiB") for number, found in enumerate(compared)),
    )


def _note(one: Trialled, number: int, found: Comparison, unit: str) -> str:
    return (
        f"{one.plans[number].predicted.words}\n"
        f"measured {found.measured:.4g} {unit}, predicted {found.predicted:.4g} {unit} "
        f"({percent(found.relative_error, signed=True)})"
    )
