"""A curve and its measurements on logarithmic axes, as places in a drawing."""

from dataclasses import dataclass
from typing import Final

from api.pages.axis import Axis, Tick
from planner.profile_fit import Curve, Point
from planner.units import format_count, format_seconds

WIDTH: Final = 320.0
HEIGHT: Final = 220.0
MOST_DOTS: Final = 400
"""Of thousands of measurements, how many are drawn: those furthest off, and others evenly."""
MOST_X_TICKS: Final = 4
"""Their labels stand side by side."""
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
    across = Axis.through([point.amount for point in curve.points], length=WIDTH)
    times = [seconds for point in curve.points for seconds in (point.seconds, point.fitted_seconds)]
    up = Axis.through(times, length=HEIGHT)
    drawn = _drawn(curve.points)
    places = [(across.place(point.amount), HEIGHT - up.place(point.fitted_seconds)) for point in drawn]
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
            for point in drawn
        ),
        line=" ".join(f"{x:g},{y:g}" for x, y in places),
        x_ticks=tuple(
            Tick(place=across.place(figure), label=f"{format_count(figure)}{curve.unit}")
            for figure in across.figures(most=MOST_X_TICKS)
        ),
        y_ticks=tuple(Tick(place=up.place(figure), label=format_seconds(figure)) for figure in up.figures()),
    )


def _drawn(points: tuple[Point, ...]) -> list[Point]:
    """Return the points that are drawn, in their order."""
    if len(points) <= MOST_DOTS:
        return list(points)
    half = MOST_DOTS // 2
    numbers = range(len(points))
    furthest = sorted(numbers, key=lambda number: -abs(points[number].residual))[:half]
    evenly = (number * (len(points) - 1) // (half - 1) for number in range(half))
    return [points[number] for number in sorted({*furthest, *evenly})]
