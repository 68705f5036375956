from collections.abc import Sequence
from typing import Any

import pytest

from planner.profile import Profile
from planner.profile_fit import LEAST_ROWS, Curve, fit_profile
from tests.unit.planner.profile_documents import profile_document

RATE, BANDWIDTH, START = 1e12, 1e11, 1e-5
SIZES = (256, 512, 1024, 2048, 4096)


def product(size: int, *, factor: float = 1.0) -> dict[str, Any]:
    seconds = START + 2 * size**3 / RATE + 3 * 4 * size**2 / BANDWIDTH
    return {
        "operator": "matrix_product",
        "dtype": "fp32",
        "phase": "forward",
        "shape": {"m": size, "n": size, "k": size},
        "seconds": factor * seconds,
    }


def all_reduce(payload_bytes: int) -> dict[str, Any]:
    return {
        "operation": "all_reduce",
        "world_size": 2,
        "ranks_per_node": 2,
        "payload_bytes": payload_bytes,
        "seconds": START + payload_bytes / BANDWIDTH,
    }


def curves_of(
    kernels: Sequence[dict[str, Any]] = (), collectives: Sequence[dict[str, Any]] = ()
) -> tuple[Curve, ...]:
    return fit_profile(Profile.from_document(profile_document(kernels=kernels, collectives=collectives)))


def test_curve_of_a_product_has_its_start_and_its_rate() -> None:
    (curve,) = curves_of(kernels=[product(size) for size in SIZES])

    assert curve.kind == "matrix_product fp32 forward"
    assert curve.start_seconds == pytest.approx(START, rel=0.02)
    assert curve.per_second == pytest.approx(RATE, rel=0.02)
    assert curve.p90_abs_residual < 1e-3


def test_one_odd_measurement_is_named_and_moves_the_curve_little() -> None:
    odd = [product(size, factor=3.0 if size == 1024 else 1.0) for size in (*SIZES, 8192, 384, 768)]
    (curve,) = curves_of(kernels=odd)

    assert curve.worst.label == "k=1024 m=1024 n=1024"
    assert curve.worst.residual == pytest.approx(2, abs=0.3)
    assert curve.median_abs_residual < 0.05


def test_curve_of_a_collective_has_its_latency_and_its_bandwidth() -> None:
    (curve,) = curves_of(collectives=[all_reduce(4**exponent) for exponent in range(5, 13)])

    assert curve.kind == "all_reduce, 2 ranks, 2 per node"
    assert curve.start_seconds == pytest.approx(START, rel=0.02)
    assert curve.per_second == pytest.approx(BANDWIDTH, rel=0.02)


def test_memory_bound_passes_count_what_they_move() -> None:
    adds = [
        {
            "operator": "add",
            "dtype": "fp32",
            "phase": "forward",
            "shape": {"elems": elems},
            "seconds": START + 3 * 4 * elems / BANDWIDTH,
        }
        for elems in (2**12, 2**16, 2**20, 2**24)
    ]
    (curve,) = curves_of(kernels=adds)

    assert curve.unit == "B"
    assert curve.per_second == pytest.approx(BANDWIDTH, rel=0.02)


def test_attention_counts_half_of_its_pairs_where_it_is_causal() -> None:
    def core(sequence: int, *, causal: int) -> dict[str, Any]:
        sizes = {"batch": 1, "heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64}
        flops = 2 * 8 * sequence**2 * 128 * (0.5 if causal else 1.0)
        return {
            "operator": "attention",
            "dtype": "bf16",
            "phase": "forward",
            "shape": {**sizes, "sequence": sequence, "causal": causal},
            "seconds": flops / RATE,
        }

    rows = [core(sequence, causal=causal) for sequence in (512, 1024, 2048) for causal in (0, 1)]
    (curve,) = curves_of(kernels=rows)

    assert curve.per_second == pytest.approx(RATE, rel=0.02)


def test_few_rows_and_unknown_operators_have_no_curve() -> None:
    unknown = {"operator": "launch", "dtype": "fp32", "phase": "forward", "shape": {}, "seconds": 1e-6}

    assert curves_of(kernels=[product(size) for size in SIZES[: LEAST_ROWS - 1]]) == ()
    assert curves_of(kernels=[unknown] * LEAST_ROWS) == ()
    assert curves_of(collectives=[all_reduce(1024)]) == ()
