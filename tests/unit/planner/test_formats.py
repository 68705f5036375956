import pytest

from planner.devices import device_by_name
from planner.formats import (
    MEASURED_AS,
    OPERAND_BYTES,
    PEAK_NAMES,
    STAND_INS,
    attention_precision,
    datasheet_peak,
    executed_precision,
    measured_formats,
)
from planner.job import Precision


def test_every_precision_has_formats_peaks_and_widths() -> None:
    assert set(MEASURED_AS) == set(PEAK_NAMES) == set(OPERAND_BYTES) == set(Precision)


def test_no_precision_stands_in_for_itself() -> None:
    for precision, others in STAND_INS.items():
        assert precision not in {one.precision for one in others}
        assert all(one.relative_error > 0.1 for one in others)


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [
        ("H100-SXM5-80GB", Precision.FP8_BLOCK, 1978.9e12),
        ("H100-SXM5-80GB", Precision.MXFP8, None),
        ("MI300X-192GB", Precision.TF32, 653.7e12),
        ("MI250-128GB", Precision.FP32, 90.5e12),
        ("MI355X-288GB", Precision.NVFP4, None),
        ("B200-SXM-180GB", Precision.NVFP4, 9000e12),
    ],
)
def test_a_peak_is_that_of_the_format_that_runs(
    device: str, precision: Precision, peak: float | None
) -> None:
    assert datasheet_peak(device_by_name(device), precision) == peak


def test_only_formats_that_a_device_has_answer_for_each_other() -> None:
    assert measured_formats(device_by_name("V100-SXM2-32GB"), Precision.FP16) == ("fp16", "bf16")
    assert measured_formats(device_by_name("V100-SXM2-32GB"), Precision.BF16) == ("bf16",)


@pytest.mark.parametrize(
    ("device", "runs"),
    [("V100-SXM2-32GB", Precision.FP32), ("A100-SXM4-80GB", Precision.TF32), ("MI300X", Precision.TF32)],
)
def test_tf32_runs_as_fp32_where_it_is_unknown(device: str, runs: Precision) -> None:
    assert executed_precision(device_by_name(device), Precision.TF32) is runs


def test_attention_runs_in_sixteen_bits_at_the_least() -> None:
    assert attention_precision(Precision.NVFP4) is Precision.BF16
    assert attention_precision(Precision.FP16) is Precision.FP16
