"""Products of many experts in one call: measured ones, their neighbours, and the laws they keep."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.compute import KernelCosts
from planner.cost.grouped_products import ACCUMULATED_BYTES, OVER_SINGLE, GroupedTimes
from planner.devices import device_by_name
from planner.job import Precision
from planner.profile import Profile, Provenance, builtin_profiles
from planner.workload.operators import Phase
from tests.unit.planner.cost.machines import BENCH_BANDWIDTH, SHAPES, bench_device, bench_seconds
from tests.unit.planner.profile_documents import product_row, profile_document

DEVICES = ["A100-PCIE-80GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM-180GB", "MI300X-192GB"]
PHASES = list(OVER_SINGLE)
TOLERANCE = 1 - 1e-9
GROUPED = (8, 512, 1024, 128)

groups = st.integers(1, 256)
sizes = st.integers(1, 2**15)
axes = st.integers(0, 3)
factors = st.integers(1, 5)


@cache
def costs(device: str) -> KernelCosts:
    return KernelCosts(device_by_name(device), builtin_profiles(), Precision.BF16)


def bench_costs(*, grouped: dict[tuple[int, int, int, int], float], phase: Phase) -> KernelCosts:
    """The bench device with rows of single products, and of these grouped ones."""
    single = [product_row(*shape, bench_seconds(*shape)) for shape in SHAPES]
    together = [
        product_row(
            m,
            n,
            k,
            seconds,
            operator="grouped_matrix_product",
            phase=phase,
            shape={"groups": count, "m": m, "n": n, "k": k},
        )
        for (count, m, n, k), seconds in grouped.items()
    ]
    profile = Profile.from_document(profile_document(kernels=[*single, *together]))
    return KernelCosts(bench_device(), [profile], Precision.FP32)


@pytest.mark.parametrize(
    ("device", "shape", "phase", "seconds"),
    [
        ("A100-PCIE-80GB", (20, 1232, 3072, 5120), Phase.FORWARD, 3.5120e-3),
        ("A100-PCIE-80GB", (40, 616, 5120, 1536), Phase.WEIGHT_GRADIENT, 2.3896e-3),
        ("B200-SXM-180GB", (128, 256, 4096, 7168), Phase.INPUT_GRADIENT, 2.5872e-3),
        ("B200-SXM-180GB", (80, 308, 5120, 1536), Phase.WEIGHT_GRADIENT, 0.83575e-3),
    ],
)
def test_a_measured_shape_takes_what_was_measured(
    device: str, shape: tuple[int, int, int, int], phase: Phase, seconds: float
) -> None:
    estimate = costs(device).grouped_product(*shape, phase=phase)
    assert estimate.provenance is Provenance.MEASURED
    assert estimate.seconds == pytest.approx(seconds, rel=0.01)


def test_deleting_the_rows_of_a_shape_changes_its_time_and_where_that_comes_from() -> None:
    with_row, without = (
        bench_costs(grouped=rows, phase=Phase.FORWARD).grouped_product(*GROUPED, phase=Phase.FORWARD)
        for rows in ({GROUPED: 3e-3}, {})
    )
    assert with_row.provenance is Provenance.MEASURED
    assert with_row.seconds == pytest.approx(3e-3)
    assert without.provenance is Provenance.INTERPOLATED
    assert without.seconds != pytest.approx(with_row.seconds)
    assert without.relative_error > with_row.relative_error


def test_rows_bound_the_shapes_around_them() -> None:
    count, m, n, k = GROUPED
    costs = bench_costs(grouped={GROUPED: 0.5}, phase=Phase.FORWARD)
    assert costs.grouped_product(count, m + 1, n, k, phase=Phase.FORWARD).seconds >= 0.5
    costs = bench_costs(grouped={GROUPED: 1e-6}, phase=Phase.FORWARD)
    assert costs.grouped_product(count - 1, m, n, k, phase=Phase.FORWARD).seconds <= 1e-6


@pytest.mark.parametrize("phase", PHASES[:2])
def test_products_in_one_call_take_less_than_one_after_the_other(phase: Phase) -> None:
    alone = costs("H100-SXM5-80GB").grouped_product(1, 1024, 2048, 4096, phase=phase)
    grouped = costs("H100-SXM5-80GB").grouped_product(16, 1024, 2048, 4096, phase=phase)
    assert grouped.seconds == pytest.approx(OVER_SINGLE[phase] * 16 * alone.seconds)
    assert grouped.relative_error > alone.relative_error


def test_weight_gradients_of_few_rows_wait_for_their_accumulation() -> None:
    times = GroupedTimes.of([], dtypes=["bf16"], bytes_per_second=BENCH_BANDWIDTH)
    for rows in (1, 16):
        seconds = times.seconds((4, rows, 512, 256), phase=Phase.WEIGHT_GRADIENT, single=1e-9)
        assert seconds > ACCUMULATED_BYTES * 4 * 512 * 256 / BENCH_BANDWIDTH
    assert times.seconds((4, 16, 512, 256), phase=Phase.FORWARD, single=1e-9) < 4e-9


@given(
    device=st.sampled_from(DEVICES), phase=st.sampled_from(PHASES), count=groups, m=sizes, n=sizes, k=sizes
)
def test_no_rate_exceeds_the_best(device: str, phase: Phase, count: int, m: int, n: int, k: int) -> None:
    seconds = costs(device).grouped_product(count, m, n, k, phase=phase).seconds
    assert 2.0 * count * m * n * k / seconds <= costs(device).best_flops_per_second() / TOLERANCE


@given(
    device=st.sampled_from(DEVICES),
    phase=st.sampled_from(PHASES),
    shape=st.tuples(groups, sizes, sizes, sizes),
    axis=axes,
    factor=factors,
)
def test_more_work_is_never_faster(
    device: str, phase: Phase, shape: tuple[int, int, int, int], axis: int, factor: int
) -> None:
    count, m, n, k = (length * factor if number == axis else length for number, length in enumerate(shape))
    less = costs(device).grouped_product(*shape, phase=phase).seconds
    more = costs(device).grouped_product(count, m, n, k, phase=phase).seconds
    assert more >= less * TOLERANCE
