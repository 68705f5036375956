"""Whose rows speak for a device's kernels: its own, its relatives', those of other number formats."""

from dataclasses import replace

import numpy as np
import pytest

from planner.cost.compute import KernelCosts
from planner.devices import device_by_name
from planner.errors import MissingMeasurements
from planner.job import Precision
from planner.profile import Profile, Provenance, builtin_profile, builtin_profiles
from planner.workload.operators import Module, Phase
from tests.unit.planner.cost.kernels import PRODUCT_PHASES, core, costs, memory_pass, product, tflops


def published(*, without: tuple[int, int, int] | None = None) -> Profile:
    document = builtin_profile("a100-sxm-80gb/published").to_document()
    shape = dict(zip("mnk", without, strict=True)) if without else None
    document["kernels"] = [row for row in document["kernels"] if row["shape"] != shape]
    return Profile.from_document(document)


def test_figures_of_the_same_chip_in_another_device_are_never_called_measured() -> None:
    estimate = costs("A100-SXM4-40GB").matrix_product(product(4096, 4096, 4096), phase=Phase.FORWARD)
    assert estimate.provenance is Provenance.INTERPOLATED


def test_deleting_the_rows_of_a_shape_changes_its_prediction_and_provenance() -> None:
    device, op = device_by_name("A100-SXM4-80GB"), product(2048, 1536, 4096)
    before = KernelCosts(device, [published()], Precision.BF16).matrix_product(op, phase=Phase.FORWARD)
    fewer = published(without=(2048, 1536, 4096))
    after = KernelCosts(device, [fewer], Precision.BF16).matrix_product(op, phase=Phase.FORWARD)
    assert (before.provenance, after.provenance) == (Provenance.MEASURED, Provenance.INTERPOLATED)
    assert after.seconds != before.seconds
    assert after.seconds == pytest.approx(before.seconds, rel=0.25)
    assert after.relative_error > before.relative_error


def test_deleting_all_rows_leaves_the_datasheet() -> None:
    bare = KernelCosts(device_by_name("A100-SXM4-80GB"), [], Precision.BF16)
    op = product(8192, 8192, 8192)
    estimate = bare.matrix_product(op, phase=Phase.FORWARD)
    assert estimate.provenance is Provenance.DATASHEET
    assert 0.6 * 312 < tflops(bare, op) < 312
    assert (
        estimate.relative_error
        > costs("A100-SXM4-80GB").matrix_product(op, phase=Phase.FORWARD).relative_error
    )
    assert bare.attention(core(), phase=Phase.BACKWARD).provenance is Provenance.DATASHEET
    assert bare.memory_pass(memory_pass(1e9), phase=Phase.FORWARD).provenance is Provenance.DATASHEET


@pytest.mark.parametrize("device", ["L4", "4090", "MI300X", "H100 PCIe", "A10G"])
def test_what_relatives_lend_is_never_called_measured(device: str) -> None:
    kernels = KernelCosts(device_by_name(device), builtin_profiles(), Precision.BF16)
    for op in (product(4096, 4096, 4096), product(64, 64, 64)):
        estimate = kernels.matrix_product(op, phase=Phase.FORWARD)
        assert estimate.provenance is not Provenance.MEASURED
        assert estimate.relative_error >= 0.08


def test_a_relative_makes_small_products_slower_than_the_datasheet_has_it() -> None:
    device, op = device_by_name("H100-PCIE-80GB"), product(512, 512, 512)
    lent, bare = (
        KernelCosts(device, profiles, Precision.BF16).matrix_product(op, phase=Phase.FORWARD)
        for profiles in (builtin_profiles(), ())
    )
    assert lent.seconds > bare.seconds
    assert lent.relative_error < bare.relative_error


def test_rows_of_a_stranger_are_not_used() -> None:
    bare, beside = (
        KernelCosts(device_by_name("TPU-v4"), profiles, Precision.BF16).matrix_product(
            product(512, 512, 512), phase=Phase.FORWARD
        )
        for profiles in ((), builtin_profiles())
    )
    assert bare == beside


@pytest.mark.parametrize(("device", "rate"), [("RTX-3090TI-24GB", 86.0), ("GAUDI2-96GB", 419.0)])
def test_a_search_for_the_best_shape_sets_the_level(device: str, rate: float) -> None:
    reached = tflops(costs(device), product(8192, 8192, 8192))
    assert 0.7 * rate < reached < rate


def test_attention_of_a_relative_takes_as_much_longer_as_its_products() -> None:
    for device in ("L4-24GB", "H100-PCIE-80GB"):
        estimate = costs(device).attention(core(), phase=Phase.FORWARD)
        assert estimate.provenance is Provenance.DATASHEET
        share = core().forward_flops / estimate.seconds / costs(device).best_flops_per_second()
        assert 0.3 < share < 0.9


def test_tf32_is_fp32_where_tensor_cores_do_not_know_it() -> None:
    op = product(4096, 4096, 4096)
    seconds = [
        costs("V100-SXM2-32GB", precision).matrix_product(op, phase=Phase.FORWARD).seconds
        for precision in (Precision.TF32, Precision.FP32)
    ]
    assert seconds[0] == seconds[1]


def test_a_format_that_was_not_measured_takes_the_share_of_its_neighbour() -> None:
    mx, own = (costs("B200-SXM-180GB", precision) for precision in (Precision.MXFP8, Precision.FP8))
    op = product(8192, 8192, 8192)
    estimates = [one.matrix_product(op, phase=Phase.FORWARD) for one in (mx, own)]
    assert estimates[0].seconds == pytest.approx(estimates[1].seconds, rel=0.05)
    assert estimates[0].relative_error > estimates[1].relative_error
    assert estimates[0].provenance is Provenance.DATASHEET


def test_a_precision_without_rows_and_without_a_peak_is_refused() -> None:
    with pytest.raises(MissingMeasurements, match="fp8 on A100-SXM4-80GB"):
        costs("A100-SXM4-80GB", Precision.FP8)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP8, Precision.NVFP4])
def test_a_format_that_a_device_lacks_is_not_priced_as_another(precision: Precision) -> None:
    with pytest.raises(MissingMeasurements):
        KernelCosts(device_by_name("V100-SXM2-32GB"), [], precision)


def test_attention_beside_eight_bit_products_runs_in_sixteen() -> None:
    for kernels in (costs, lambda device, precision: KernelCosts(device_by_name(device), [], precision)):
        narrow, wide = (kernels("H100-SXM5-80GB", each) for each in (Precision.FP8, Precision.BF16))
        assert narrow.attention(core(), phase=Phase.FORWARD) == wide.attention(core(), phase=Phase.FORWARD)
        scores = product(2048, 2048, 128, count=64, has_weights=False)
        seconds = [one.matrix_product(scores, phase=Phase.FORWARD).seconds for one in (narrow, wide)]
        assert seconds[0] == pytest.approx(seconds[1])


@pytest.mark.parametrize(("precision", "ratio"), [(Precision.FP16, 1.0), (Precision.FP8, 1.75)])
def test_a_narrower_format_is_faster_where_the_device_has_it(precision: Precision, ratio: float) -> None:
    op = product(8192, 8192, 8192)
    faster = tflops(costs("H100-SXM5-80GB", precision), op) / tflops(costs("H100-SXM5-80GB"), op)
    assert faster == pytest.approx(ratio, rel=0.2)


def test_rows_in_two_formats_of_one_rate_answer_for_each_other() -> None:
    assert np.isclose(
        tflops(costs("A100-SXM4-80GB", Precision.FP16), product(2048, 2048, 2048)),
        tflops(costs("A100-SXM4-80GB"), product(2048, 2048, 2048)),
    )


@pytest.mark.parametrize("phase", PRODUCT_PHASES)
def test_the_head_runs_in_sixteen_bits_where_other_products_run_in_eight(phase: Phase) -> None:
    inner = product(8192, 16384, 4096)
    head = replace(inner, module=Module.HEAD)
    eight, sixteen = costs("H100-SXM5-80GB", Precision.FP8), costs("H100-SXM5-80GB", Precision.BF16)
    assert eight.matrix_product(head, phase=phase) == sixteen.matrix_product(inner, phase=phase)
    assert eight.matrix_product(head, phase=phase).seconds > eight.matrix_product(inner, phase=phase).seconds
