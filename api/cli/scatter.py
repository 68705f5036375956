"""A scatter plot of predictions over measurements, on logarithmic axes, as places in a drawing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from api.pages.axis import MARGIN_FACTOR, Tick, round_figures
from planner.validation.comparison import Comparison

SIDE: Final = 320.0
"""Width and height of the plot, in the units of the drawing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One row's place: to the right by what was measured, up by what was predicted."""

    x: float
    y: float
    is_covered: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
    """Points and ticks in a square; a perfect prediction lies on its diagonal."""

    points: tuple[Point, ...]
    ticks: tuple[Tick, ...]
    side: float = SIDE


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """A scatter plot with its heading and what is said of each of its points."""

    title: str
    scatter: Scatter
    notes: tuple[str, ...]


def scatter_of(compared: Sequence[Comparison], *, shown: Callable[[float], str]) -> Scatter:
    """Return where the rows stand; both axes have the same ends, so that the diagonal means equality."""
    figures = [figure for found in compared for figure in (found.predicted, found.measured)]
    low, high = min(figures) / MARGIN_FACTOR, max(figures) * MARGIN_FACTOR

    def place(figure: float) -> float:
        return round(SIDE * log(figure / low) / log(high / low), 1)

    return Scatter(
        points=tuple(
            Point(x=place(found.measured), y=SIDE - place(found.predicted), is_covered=found.is_covered)
            for found in compared
        ),
        ticks=tuple(Tick(place=place(figure), label=shown(figure)) for figure in round_figures(low, high)),
    )
