"""A logarithmic axis of a drawing: where figures stand on it, and which round ones are written beside it."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, log, log10
from typing import Final

MOST_TICKS: Final = 7
STEPS: Final = ((1, 1.5, 2, 3, 4, 5, 6, 7, 8), (1, 2, 5), (1,))
"""Figures on an axis, times the powers of ten; the first that are not too many are taken."""
MARGIN_FACTOR: Final = 1.15
"""How far the axes reach beyond the outermost figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A figure on an axis, and how far from its origin it stands."""

    place: float
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """An axis between two figures, so long in the units of the drawing."""

    low: float
    high: float
    length: float

    @classmethod
    def through(cls, figures: Iterable[float], *, length: float) -> "Axis":
        """Return an axis that has all figures, with a margin on either side."""
        every = list(figures)
        return cls(low=min(every) / MARGIN_FACTOR, high=max(every) * MARGIN_FACTOR, length=length)

    def place(self, figure: float) -> float:
        """Return how far from the origin a figure stands."""
        return round(self.length * log(figure / self.low) / log(self.high / self.low), 1)

    def figures(self, *, most: int = MOST_TICKS) -> list[float]:
        """Return round figures on the axis: as many as there is room for."""
        return round_figures(self.low, self.high, most=most)


def round_figures(low: float, high: float, *, most: int = MOST_TICKS) -> list[float]:
    """Return round figures between the ends: as many as there is room for."""
    powers = [10.0**exponent for exponent in range(floor(log10(low)), ceil(log10(high)) + 1)]
    scales = ([step * power for power in powers for step in steps] for steps in STEPS)
    inside = [[figure for figure in scale if low <= figure <= high] for scale in scales]
    return next((figures for figures in inside if len(figures) <= most), inside[-1])
