import numpy as np
import pytest

from planner.cost.product_line import fitted_line
from planner.cost.product_rows import Stack
from tests.unit.planner.cost.machines import SHAPES, bench_seconds

ROWS = Stack(
    shapes=np.array(SHAPES, dtype=np.int64),
    seconds=np.array([bench_seconds(*shape) for shape in SHAPES]),
    is_burst=True,
)


def test_rows_of_such_a_line_are_met() -> None:
    line = fitted_line(ROWS)
    for shape in SHAPES:
        assert line.seconds(*shape) == pytest.approx(bench_seconds(*shape))


def test_one_row_gives_a_rate() -> None:
    one = Stack(shapes=ROWS.shapes[-1:], seconds=ROWS.seconds[-1:], is_burst=True)
    line = fitted_line(one)
    assert line.seconds(*SHAPES[-1]) == pytest.approx(bench_seconds(*SHAPES[-1]))
    assert line.seconds_per_flop > 0


def test_a_line_of_another_device_takes_its_rates() -> None:
    line = fitted_line(ROWS)
    slower = line.scaled(per_flop=2.0, per_element=2.0)
    start = line.start_seconds
    assert slower.seconds(512, 512, 512) - start == pytest.approx(2 * (line.seconds(512, 512, 512) - start))
