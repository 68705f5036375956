"""Who tells of a device's products, and how much slower than on the lender they are."""

import pytest

from planner.cost.lenders import borrowed_products, datasheet_roofline, lenders_of, slowness_of
from planner.devices import device_by_name
from planner.job import Precision
from planner.profile import Profile, builtin_profile, builtin_profiles

H100 = builtin_profile("h100-sxm/published")
A100 = builtin_profile("a100-sxm-80gb/published")


def names_of_lenders(device: str, precision: Precision, *profiles: Profile) -> list[tuple[str, Precision]]:
    lenders = lenders_of(device_by_name(device), profiles, precision)
    return [(lender.device.name, lender.precision) for lender in lenders]


def test_the_nearest_lends_first_and_its_own_format_before_another() -> None:
    assert names_of_lenders("H200-SXM-141GB", Precision.BF16, A100, H100) == [
        ("H100-SXM5-80GB", Precision.BF16),
        ("A100-SXM4-80GB", Precision.BF16),
    ]
    device, precision = names_of_lenders("H100-SXM5-80GB", Precision.MXFP8, A100, H100)[0]
    assert device == "H100-SXM5-80GB"
    assert precision is not Precision.MXFP8


def test_errors_grow_with_distance() -> None:
    errors = [
        lender.relative_error
        for lender in lenders_of(device_by_name("H200-SXM-141GB"), [A100, H100], Precision.BF16)
    ]
    assert errors == sorted(errors)
    assert errors[0] < errors[1]


def test_a_lender_of_the_same_chip_gives_its_own_times() -> None:
    device, lender = device_by_name("H200-SXM-141GB"), device_by_name("H100-SXM5-80GB")
    roofline = datasheet_roofline(
        device, Precision.BF16, bytes_per_second=device.memory_bandwidth_bytes_per_second
    )
    found, own = (borrowed_products(one, [H100], Precision.BF16, roofline) for one in (device, lender))
    assert own is None
    assert found is not None
    assert found.is_same_chip
    share = 2 * 8192**3 / found.base(8192, 8192, 8192) / device.peak_flops_per_second["bf16"]
    assert 0.6 < share < 0.85


def test_another_architecture_lends_nothing_where_only_the_same_is_asked() -> None:
    device = device_by_name("H200-SXM-141GB")
    roofline = datasheet_roofline(
        device, Precision.BF16, bytes_per_second=device.memory_bandwidth_bytes_per_second
    )
    only = borrowed_products(device, [A100], Precision.BF16, roofline, only_same_architecture=True)
    assert only is None
    assert borrowed_products(device, [A100], Precision.BF16, roofline) is not None


def test_a_device_of_half_the_peak_is_twice_as_slow() -> None:
    device = device_by_name("A100-SXM4-80GB")
    lender = next(iter(lenders_of(device, [H100], Precision.BF16)))
    peaks = [one.peak_flops_per_second["bf16"] for one in (lender.device, device)]
    assert slowness_of(device, [], lender, Precision.BF16) == pytest.approx(peaks[0] / peaks[1])


@pytest.mark.parametrize("precision", list(Precision))
def test_what_no_relative_measured_is_borrowed_from_nobody(precision: Precision) -> None:
    device = device_by_name("TPU-v4")
    roofline = datasheet_roofline(device, precision, bytes_per_second=1e12)
    assert borrowed_products(device, builtin_profiles(), precision, roofline) is None
