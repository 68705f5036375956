import itertools

import numpy as np
import pytest

from planner.cost.matrix_products import LEAST_SUSTAINED, Pace, product_times
from planner.cost.product_grid import Roofline
from planner.cost.product_rows import Stack, grid_of
from tests.unit.planner.cost.machines import BENCH_BANDWIDTH, BENCH_FLOPS, bench_seconds

ROOFLINE = Roofline(flops_per_second=BENCH_FLOPS, bytes_per_second=BENCH_BANDWIDTH, element_bytes=4)
PACE = Pace(factor=1.5, relative_error=0.1)
LADDER = (128, 512, 2048, 8192)
GRID = list(itertools.product(LADDER, LADDER, LADDER))
SCATTERED = [(96 * number, 160 * number, 224 * number) for number in range(2, 2 + LEAST_SUSTAINED)]


def stack(shapes: list[tuple[int, int, int]], *, factor: float = 1.0, is_burst: bool = True) -> Stack:
    seconds = np.array([factor * bench_seconds(*shape) for shape in shapes])
    return Stack(shapes=np.array(shapes, dtype=np.int64), seconds=seconds, is_burst=is_burst)


def test_bursts_are_slowed_to_the_pace_of_the_family() -> None:
    times = product_times([stack(GRID)], ROOFLINE, family_pace=PACE)
    assert times.seconds(512, 512, 512) == pytest.approx(1.5 * bench_seconds(512, 512, 512))
    assert times.relative_error(512, 512, 512) == pytest.approx(0.1, rel=0.05)


def test_scattered_bursts_are_slowed_too_where_there_is_no_grid() -> None:
    times = product_times([stack(SCATTERED)], ROOFLINE, family_pace=PACE)
    assert times.seconds(*SCATTERED[3]) == pytest.approx(1.5 * bench_seconds(*SCATTERED[3]))


def test_of_two_stacks_the_slower_counts_at_each_shape() -> None:
    faster, slower = stack(GRID), stack([shape for shape in GRID if shape[0] <= 2048], factor=1.2)
    times = product_times([faster, slower], ROOFLINE, family_pace=Pace(factor=1.0, relative_error=0.0))
    assert times.seconds(128, 512, 512) == pytest.approx(1.2 * bench_seconds(128, 512, 512))
    assert times.seconds(8192, 512, 512) == pytest.approx(bench_seconds(8192, 512, 512))
    assert (8192, 512, 512) in times.hits


def test_enough_rows_at_the_pace_of_a_step_fix_the_pace() -> None:
    sustained = stack(SCATTERED, factor=2.0, is_burst=False)
    times = product_times([stack(GRID), sustained], ROOFLINE, family_pace=PACE)
    assert times.seconds(512, 2048, 512) == pytest.approx(2.0 * bench_seconds(512, 2048, 512), rel=0.1)
    assert times.seconds(*SCATTERED[3]) == pytest.approx(2.0 * bench_seconds(*SCATTERED[3]), rel=0.02)


def test_too_few_of_them_leave_it_to_the_family() -> None:
    sustained = stack(SCATTERED[:1], factor=1.5, is_burst=False)
    times = product_times([stack(GRID), sustained], ROOFLINE, family_pace=PACE)
    assert times.seconds(8192, 8192, 8192) == pytest.approx(1.5 * bench_seconds(8192, 8192, 8192))


def test_a_grid_is_found_among_scattered_rows() -> None:
    found = grid_of(stack([*SCATTERED, *GRID]))
    assert found is not None
    ladders, on_grid = found
    assert [ladder.tolist() for ladder in ladders] == [list(LADDER)] * 3
    assert on_grid.sum() == len(GRID)


def test_scattered_rows_are_no_grid() -> None:
    assert grid_of(stack(SCATTERED)) is None


def test_narrow_products_follow_the_roofline_below_the_grid() -> None:
    times = product_times([stack(GRID)], ROOFLINE, family_pace=Pace(factor=1.0, relative_error=0.0))
    assert times.seconds(16, 2048, 2048) < 0.5 * times.seconds(128, 2048, 2048)
    assert times.seconds(1, 1, 1) > 1e-6
