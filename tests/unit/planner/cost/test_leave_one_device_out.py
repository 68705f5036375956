import pytest

from planner.cost.leave_one_device_out import leave_one_device_out
from planner.cost.leave_one_out import LeftOut
from planner.devices import device_by_name
from planner.profile import builtin_profile, builtin_profiles
from tests.unit.planner.cost.machines import bench_device, bench_profile


def errors(system: str) -> dict[str, LeftOut]:
    profile = builtin_profile(f"{system}/published")
    device = device_by_name(profile.device)
    return {one.kind: one for one in leave_one_device_out(profile, device, builtin_profiles())}


@pytest.mark.parametrize(
    ("system", "most"),
    [
        ("h100-sxm", 0.08),
        ("h200-sxm", 0.08),
        ("gb200", 0.08),
        ("gb300", 0.08),
        ("b300", 0.08),
        ("a100-sxm-80gb", 0.12),
        ("l40s", 0.20),
        ("rtx-pro-6000", 0.20),
    ],
)
def test_products_are_told_by_relatives(system: str, most: float) -> None:
    assert errors(system)["matrix_product bf16 forward"].median_abs_error < most


@pytest.mark.parametrize("system", ["h100-sxm", "gb200", "gb300", "b200"])
def test_attention_and_collectives_are_told_by_relatives(system: str) -> None:
    found = errors(system)
    assert found["attention forward causal, head dimension 128"].median_abs_error < 0.1
    assert found["all_reduce inside a node"].median_abs_error < 0.1


def test_the_device_itself_does_not_help() -> None:
    profile = builtin_profile("h100-sxm/published")
    device = device_by_name(profile.device)
    alone = leave_one_device_out(profile, device, [profile])
    assert {one.kind: one.median_abs_error for one in alone}["matrix_product fp8 forward"] > 0.1


def test_a_machine_without_relatives_is_told_by_its_datasheet() -> None:
    found = {one.kind: one for one in leave_one_device_out(bench_profile(), bench_device(), ())}
    assert found["matrix_product fp32 forward"].rows > 0
