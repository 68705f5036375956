from dataclasses import replace

import pytest

from planner.cluster import Device
from planner.devices import device_by_name, device_names
from planner.job import Precision
from planner.relatives import (
    Closeness,
    closeness,
    devices_that_speak_for,
    nearest_first,
    published,
    published_profiles,
)

UNKNOWN = Device(
    name="my-gpu",
    memory_bytes=2.0**35,
    peak_flops_per_second={"bf16": 2e14, "fp16": 2e14},
    memory_bandwidth_bytes_per_second=1e12,
)


@pytest.mark.parametrize(
    ("device", "other", "expected"),
    [
        ("H100-SXM5-80GB", "H100-SXM5-80GB", Closeness.SAME_DEVICE),
        ("A100-SXM4-40GB", "A100-SXM4-80GB", Closeness.SAME_CHIP),
        ("GH200-96GB", "H100-SXM5-80GB", Closeness.SAME_CHIP),
        ("B200-SXM-180GB", "GB200-186GB", Closeness.SAME_ARCHITECTURE),
        ("RTX-4090-24GB", "L40S-48GB", Closeness.SAME_ARCHITECTURE),
        ("B300-SXM-288GB", "B200-SXM-180GB", Closeness.SAME_FAMILY),
        ("A100-SXM4-80GB", "A40-48GB", Closeness.SAME_FAMILY),
        ("RTX-PRO-6000-SERVER-96GB", "B200-SXM-180GB", Closeness.SAME_VENDOR),
        ("V100-SXM2-32GB", "A100-SXM4-80GB", Closeness.SAME_VENDOR),
        ("MI300X-192GB", "H100-SXM5-80GB", None),
    ],
)
def test_devices_are_near_by_descent(device: str, other: str, expected: Closeness | None) -> None:
    one, another = device_by_name(device), device_by_name(other)
    assert closeness(one, another) is expected
    assert closeness(another, one) is expected


def test_of_equal_descent_the_one_with_like_power_and_rates_is_nearest() -> None:
    others = [device_by_name(name) for name in ("A40-48GB", "RTX-3090-24GB", "A100-SXM4-80GB")]
    assert [other.name for other in nearest_first(device_by_name("A10G"), others)] == [
        "RTX-3090-24GB",
        "A40-48GB",
        "A100-SXM4-80GB",
    ]


def test_a_stranger_has_no_relatives_until_its_architecture_is_named() -> None:
    measured = [device_by_name(name) for name in ("L40S-48GB", "MI300X-192GB")]
    assert nearest_first(UNKNOWN, measured) == []
    named = replace(UNKNOWN, vendor="nvidia", architecture="ada")
    assert [other.name for other in nearest_first(named, measured)] == ["L40S-48GB"]
    assert closeness(named, measured[0]) is Closeness.SAME_FAMILY


@pytest.mark.parametrize(
    ("device", "precision", "expected"),
    [
        ("H100-SXM5-80GB", Precision.BF16, ["H100-SXM5-80GB"]),
        ("B200-SXM-180GB", Precision.MXFP8, ["B200-SXM-180GB"]),
        ("A100-SXM4-40GB", Precision.BF16, ["A100-SXM4-40GB", "A100-SXM4-80GB"]),
        ("RTX-4090-24GB", Precision.FP8, ["RTX-4090-24GB", "L40S-48GB"]),
        ("TPU-v4", Precision.BF16, []),
    ],
)
def test_relatives_speak_for_what_a_device_lacks(
    device: str, precision: Precision, expected: list[str]
) -> None:
    assert list(devices_that_speak_for(device_by_name(device), precision)) == expected


@pytest.mark.parametrize("device", device_names())
def test_few_profiles_answer_for_a_device(device: str) -> None:
    profiles = published_profiles(device_by_name(device), Precision.BF16)
    names = [profile.device for profile in profiles]
    assert len(names) == len(set(names)) <= 5
    measured = {entry.device for entry in published()}
    assert (device in measured) == (device in names)


def test_nobody_speaks_for_a_stranger() -> None:
    assert devices_that_speak_for(UNKNOWN, Precision.BF16) == ()
