from api.pages.curve_plot import HEIGHT, MOST_DOTS, WIDTH, plot_of
from planner.profile_fit import Curve, Point


def curve(*factors: float) -> Curve:
    points = tuple(
        Point(
            label=f"n={number}", amount=2.0**number, seconds=factor * 2.0**number, fitted_seconds=2.0**number
        )
        for number, factor in enumerate(factors)
    )
    return Curve(kind="add fp32 forward", unit="B", start_seconds=0.0, per_second=1.0, points=points)


def test_every_measurement_lies_inside_the_frame_and_its_curve_too() -> None:
    plot = plot_of(curve(1.0, 1.3, 0.5, 1.1))

    assert all(0 < dot.x < WIDTH and 0 < dot.y < HEIGHT for dot in plot.dots)
    assert len(plot.line.split()) == 4
    assert plot.x_ticks
    assert plot.y_ticks


def test_what_lies_off_the_curve_is_marked_and_told() -> None:
    plot = plot_of(curve(1.0, 1.3, 0.5, 1.1))

    assert [dot.is_far for dot in plot.dots] == [False, True, True, False]
    assert plot.dots[1].note == "n=1: 2.6 s, curve 2 s (+30%)"


def test_of_thousands_of_measurements_the_furthest_off_are_drawn() -> None:
    points = tuple(
        Point(
            label=str(number), amount=1.0 + number, seconds=3.0 if number == 777 else 1.0, fitted_seconds=1.0
        )
        for number in range(5000)
    )
    plot = plot_of(Curve(kind="add", unit="B", start_seconds=0.0, per_second=None, points=points))

    assert MOST_DOTS / 2 <= len(plot.dots) <= MOST_DOTS
    assert [dot.note.partition(":")[0] for dot in plot.dots if dot.is_far] == ["777"]
