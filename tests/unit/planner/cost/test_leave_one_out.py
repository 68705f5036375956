from typing import Any

import pytest

from planner.cost.leave_one_out import LeftOut, leave_one_out
from planner.devices import device_by_name
from planner.profile import Profile, builtin_profile
from tests.unit.planner.cost.machines import BENCH_FLOPS, bench_device, bench_profile
from tests.unit.planner.profile_documents import pass_row, profile_document

SWEPT = ("a100-sxm-80gb", "b200", "b300", "gb200", "gb300", "h100-sxm", "h200-sxm", "l40s", "rtx-pro-6000")
PROFILES = [builtin_profile(f"{system}/published") for system in SWEPT]


def errors(profile: Profile) -> dict[str, LeftOut]:
    return {one.kind: one for one in leave_one_out(profile, device_by_name(profile.device))}


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_half_of_the_products_are_found_from_their_neighbours_to_a_few_percent(profile: Profile) -> None:
    products = errors(profile)["matrix_product bf16 forward"]
    assert products.rows > 3000
    assert products.median_abs_error < (0.07 if profile.name == "l40s/published" else 0.05)
    assert products.p90_abs_error < 0.2


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_attention_and_collectives_are_found_from_their_neighbours(profile: Profile) -> None:
    found = errors(profile)
    assert found["attention forward causal, head dimension 128"].median_abs_error < 0.06
    assert found["all_reduce inside a node"].median_abs_error < 0.05


def test_a_machine_of_few_measurements_has_errors_too() -> None:
    products, adds, reduces = leave_one_out(bench_profile(), bench_device())
    assert products.kind == "matrix_product fp32 forward, scattered"
    assert 0 < products.median_abs_error < 0.2
    assert adds.kind == "add forward"
    assert reduces.kind == "all_reduce inside a node"
    assert reduces.rows == 2


def test_grouped_and_batched_products_are_found_from_the_others() -> None:
    grouped = errors(builtin_profile("b200/published"))["grouped_matrix_product bf16 weight_gradient"]
    assert grouped.rows == 20
    assert grouped.median_abs_error < 0.15
    batched = errors(builtin_profile("a100-sxm-40gb/published"))["batched_matrix_product bf16 forward"]
    assert batched.rows == 24
    assert batched.median_abs_error < 0.2


def test_memory_passes_are_found_along_the_bytes_that_they_move() -> None:
    adds = [pass_row("add", 2**power, 2e-6 + 2.0**power * 12 / 1e11) for power in range(12, 25, 3)]
    profile = Profile.from_document(profile_document(kernels=adds))
    (passes,) = leave_one_out(profile, bench_device())
    assert (passes.kind, passes.rows) == ("add forward", 3)
    assert 0 < passes.median_abs_error < 0.5


def test_attention_in_single_precision_is_found_apart() -> None:
    def row(length: int, batch: int) -> dict[str, Any]:
        heads = {"heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64}
        return {
            "operator": "attention",
            "dtype": "fp32",
            "phase": "forward",
            "shape": {"batch": batch, "sequence": length, **heads, "causal": 1},
            "seconds": 1e-5 + 4 * batch * 8 * length**2 * 64 / 2 / BENCH_FLOPS,
            "spread_seconds": None,
            "source": "test",
        }

    rows = [row(length, batch) for length in (256, 512, 1024, 2048, 4096) for batch in (1, 2, 4, 8)]
    found = leave_one_out(Profile.from_document(profile_document(kernels=rows)), bench_device())
    (core,) = [one for one in found if one.kind.startswith("attention")]
    assert core.kind == "attention fp32 forward causal, head dimension 64"
    assert core.rows
