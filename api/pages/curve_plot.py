"""A curve and its measurements on logarithmic axes, as places in a drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from api.cli.scatter import MARGIN_FACTOR, Tick, round_figures
from planner.profile_fit import Curve
from planner.units import format_count, format_seconds

WIDTH: Final = 320.0
HEIGHT: Final = 220.0
FAR: Final = 0.2
"""Share by which a measurement lies off its curve from which it is drawn as one that does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """A measurement: to the right by its amount of work, up by its time."""

    x: float
    y: float
    is_far: bool
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePlot:
    """Dots, the line of their curve, and the figures on both axes."""

    title: str
    dots: tuple[Dot, ...]
    line: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: float = WIDTH
    height: float = HEIGHT


def plot_of(curve: Curve) -> CurvePlot:
    """Return where everything stands."""
    across = _Axis.through([point.amount for point in curve.points], length=WIDTH)
    times = [seconds for point in curve.points for seconds in (point.seconds, point.fitted_seconds)]
    up = _Axis.through(times, length=HEIGHT)
    places = [(across.place(point.amount), HEIGHT - up.place(point.fitted_seconds)) for point in curve.points]
    return CurvePlot(
        title=curve.kind,
        dots=tuple(
            Dot(
                x=across.place(point.amount),
                y=HEIGHT - up.place(point.seconds),
                is_far=abs(point.residual) > FAR,
                note=f"{point.label}: {format_seconds(point.seconds)}, curve "
                f"{format_seconds(point.fitted_seconds)} ({point.residual:+.0%})",
            )
            for point in curve.points
        ),
        line=" ".join(f"{x:g},{y:g}" for x, y in places),
        x_ticks=tuple(
            Tick(place=across.place(figure), label=f"{format_count(figure)}{curve.unit}")
            for figure in across.figures()
        ),
        y_ticks=tuple(Tick(place=up.place(figure), label=format_seconds(figure)) for figure in up.figures()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Axis:
    low: float
    high: float
    length: float

    @classmethod
    def through(cls, figures: Sequence[float], *, length: float) -> "_Axis":
        return cls(low=min(figures) / MARGIN_FACTOR, high=max(figures) * MARGIN_FACTOR, length=length)

    def place(self, figure: float) -> float:
        return round(self.length * log(figure / self.low) / log(self.high / self.low), 1)

    def figures(self) -> list[float]:
        return round_figures(self.low, self.high)
