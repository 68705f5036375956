"""A scatter plot of predictions over measurements, on logarithmic axes, as places in a drawing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10
from typing import Final

from planner.validation.comparison import Comparison

SIDE: Final = 320.0
"""Width and height of the plot, in the units of the drawing."""
MOST_TICKS: Final = 7
STEPS: Final = ((1, 1.5, 2, 3, 4, 5, 6, 7, 8), (1, 2, 5), (1,))
"""Figures on an axis, times the powers of ten; the first that are not too many are taken."""
MARGIN_FACTOR: Final = 1.15
"""How far the axes reach beyond the outermost figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One row's place: to the right by what was measured, up by what was predicted."""

    x: float
    y: float
    is_covered: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A figure on both axes, and how far from their origin it stands."""

    place: float
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
    """Points and ticks in a square; a perfect prediction lies on its diagonal."""

    points: tuple[Point, ...]
    ticks: tuple[Tick, ...]
    side: float = SIDE


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


def round_figures(low: float, high: float) -> list[float]:
    """Return round figures between the ends: as many as there is room for."""
    powers = [10.0**exponent for exponent in range(floor(log10(low)), ceil(log10(high)) + 1)]
    scales = ([step * power for power in powers for step in steps] for steps in STEPS)
    inside = [[figure for figure in scale if low <= figure <= high] for scale in scales]
    return next((figures for figures in inside if len(figures) <= MOST_TICKS), inside[-1])
