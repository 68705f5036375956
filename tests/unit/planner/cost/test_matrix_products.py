import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from planner.cost.matrix_products import (
    LEAST_SUSTAINED,
    Borrow,
    Borrowed,
    Pace,
    ProductTimes,
    product_times,
)
from planner.cost.product_grid import OUTLIER, Roofline
from planner.cost.product_rows import Stack, grid_of, held_in_step
from tests.unit.planner.cost.machines import BENCH_BANDWIDTH, BENCH_FLOPS, bench_seconds

ROOFLINE = Roofline(flops_per_second=BENCH_FLOPS, bytes_per_second=BENCH_BANDWIDTH, element_bytes=4)
PACE = Pace(factor=1.5, relative_error=0.1)
UNCHANGED = Pace(factor=1.0, relative_error=0.0)
LADDER = (128, 512, 2048, 8192)
GRID = list(itertools.product(LADDER, LADDER, LADDER))
SCATTERED = [(96 * number, 160 * number, 224 * number) for number in range(2, 2 + LEAST_SUSTAINED)]


def stack(shapes: list[tuple[int, int, int]], *, factor: float = 1.0, is_burst: bool = True) -> Stack:
    seconds = np.array([factor * bench_seconds(*shape) for shape in shapes])
    return Stack(shapes=np.array(shapes, dtype=np.int64), seconds=seconds, is_burst=is_burst)


def times_of(
    stacks: Sequence[Stack], *, family_pace: Pace = PACE, borrow: Borrow | None = None
) -> ProductTimes:
    times = product_times(stacks, ROOFLINE, family_pace=family_pace, borrow=borrow)
    assert times is not None
    return times


def test_bursts_are_slowed_to_the_pace_of_the_family() -> None:
    times = times_of([stack(GRID)])
    assert times.seconds(512, 512, 512) == pytest.approx(1.5 * bench_seconds(512, 512, 512))
    assert times.relative_error(512, 512, 512) == pytest.approx(0.1, rel=0.05)


def test_scattered_bursts_are_slowed_too_where_there_is_no_grid() -> None:
    times = times_of([stack(SCATTERED)])
    assert times.seconds(*SCATTERED[3]) == pytest.approx(1.5 * bench_seconds(*SCATTERED[3]))


def test_of_two_stacks_the_slower_counts_at_each_shape() -> None:
    faster, slower = stack(GRID), stack([shape for shape in GRID if shape[0] <= 2048], factor=1.2)
    times = times_of([faster, slower], family_pace=UNCHANGED)
    assert times.seconds(128, 512, 512) == pytest.approx(1.2 * bench_seconds(128, 512, 512))
    assert times.seconds(8192, 512, 512) == pytest.approx(bench_seconds(8192, 512, 512))
    assert (8192, 512, 512) in times.hits


def test_enough_rows_at_the_pace_of_a_step_fix_the_pace() -> None:
    sustained = stack(SCATTERED, factor=2.0, is_burst=False)
    times = times_of([stack(GRID), sustained])
    assert times.seconds(512, 2048, 512) == pytest.approx(2.0 * bench_seconds(512, 2048, 512), rel=0.1)
    assert times.seconds(*SCATTERED[3]) == pytest.approx(2.0 * bench_seconds(*SCATTERED[3]), rel=0.02)


def test_too_few_of_them_leave_it_to_the_family() -> None:
    sustained = stack(SCATTERED[:1], factor=1.5, is_burst=False)
    times = times_of([stack(GRID), sustained])
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
    times = times_of([stack(GRID)], family_pace=UNCHANGED)
    assert times.seconds(16, 2048, 2048) < 0.5 * times.seconds(128, 2048, 2048)
    assert times.seconds(1, 1, 1) > 1e-6


def test_of_two_stacks_far_apart_the_slower_was_held_back() -> None:
    slower = stack(GRID, factor=1.1 * OUTLIER)
    times = times_of([stack(GRID), slower], family_pace=UNCHANGED)
    assert times.seconds(512, 512, 512) == pytest.approx(bench_seconds(512, 512, 512))


def lent(*, level: float | None = None, is_burst: bool = True, is_same_chip: bool = False) -> Borrowed:
    """A relative that takes twice as long as the bench."""
    return Borrowed(
        base=lambda m, n, k: 2.0 * bench_seconds(round(m), round(n), round(k)),
        best_flops_per_second=BENCH_FLOPS,
        grids=(),
        is_burst=is_burst,
        relative_error=0.2,
        is_same_chip=is_same_chip,
        level=level,
    )


def test_without_rows_and_relatives_nothing_is_known() -> None:
    assert product_times([], ROOFLINE, family_pace=PACE) is None


@pytest.mark.parametrize(
    ("borrowed", "factor"),
    [(lent(), 2.0 * 1.5), (lent(level=0.5), 1.5), (lent(is_burst=False), 2.0)],
)
def test_a_relative_lends_its_times_at_the_level_of_best_shapes_and_the_pace_of_the_family(
    borrowed: Borrowed, factor: float
) -> None:
    times = times_of([], borrow=lambda _: borrowed)
    assert times.seconds(512, 512, 512) == pytest.approx(factor * bench_seconds(512, 512, 512))
    assert times.relative_error(512, 512, 512) >= 0.2
    assert not times.is_measured


def test_rows_of_its_own_set_the_level_of_what_a_relative_lends() -> None:
    own = stack(SCATTERED, factor=3.0, is_burst=False)
    times = times_of([own], borrow=lambda _: lent())
    assert times.seconds(512, 512, 512) == pytest.approx(3.0 * bench_seconds(512, 512, 512))
    assert times.relative_error(512, 512, 512) < 0.2
    assert times.is_measured
    bursts = times_of([stack(SCATTERED, factor=3.0)], borrow=lambda _: lent())
    assert bursts.seconds(512, 512, 512) == pytest.approx(4.5 * bench_seconds(512, 512, 512))


def test_the_same_chip_counts_as_measured() -> None:
    assert times_of([], borrow=lambda _: lent(is_same_chip=True)).is_measured


def test_a_relative_is_asked_by_how_many_rows_there_are() -> None:
    asked: list[int] = []

    def borrow(num_rows: int) -> None:
        asked.append(num_rows)

    times_of([stack(SCATTERED)], borrow=borrow)
    times_of([stack(GRID)], borrow=borrow)
    assert asked == [len(SCATTERED)]


def test_a_step_at_the_power_limit_runs_short_kernels_at_the_rate_of_long_ones() -> None:
    shapes = [(8192 + 256 * number, 8192, 8192) for number in range(16)]
    seconds = [2.0 * m * n * k / BENCH_FLOPS for m, n, k in shapes]
    short = (2048, 2048, 2048)
    rows = Stack(
        shapes=np.array([*shapes, short]),
        seconds=np.array([*seconds, 0.5 * 2 * 2048**3 / BENCH_FLOPS]),
        is_burst=False,
    )
    held = held_in_step(rows, factor=1.1)
    assert held.seconds[-1] == pytest.approx(1.1 * 2 * 2048**3 / BENCH_FLOPS)
    assert held.seconds[0] == pytest.approx(1.1 * seconds[0])
    few = rows.where(np.arange(17) > 10)
    assert held_in_step(few, factor=1.1) is few
