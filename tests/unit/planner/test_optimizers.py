"""Optimizers keep, move and compute what their papers say."""

import pytest

from planner.optimizers import (
    OPTIMIZER_ALIASES,
    OPTIMIZERS,
    Matrix,
    WeightShapes,
    newton_schulz_products,
)

SQUARE = WeightShapes(matrices=(Matrix(rows=4096, columns=4096),))
LAYER = WeightShapes(
    matrices=(Matrix(rows=8192, columns=4096), Matrix(rows=4096, columns=8192)),
    tables=(Matrix(rows=32000, columns=4096),),
    vectors=8192,
)


@pytest.mark.parametrize(
    ("name", "bytes_per_parameter"),
    [
        ("sgd", 4),
        ("sgd_plain", 0),
        ("adam", 8),
        ("adamw", 8),
        ("adamw_8bit", 2 + 2 * 4 / 256),
        ("lion", 4),
        ("muon", 4),
        ("lamb", 8),
        ("adafactor", 4 * 2 * 4096 / 4096**2),
        ("rowwise_adagrad", 4 / 4096),
    ],
)
def test_bytes_that_a_square_matrix_keeps(name: str, bytes_per_parameter: float) -> None:
    kept = OPTIMIZERS[name].moment_bytes(SQUARE, value_bytes=4)
    assert kept / SQUARE.parameters == pytest.approx(bytes_per_parameter)


def test_moments_in_two_bytes_are_half_as_large_but_for_those_that_fix_their_own() -> None:
    for name, share in (("adamw", 0.5), ("adafactor", 0.5), ("adamw_8bit", 1.0)):
        optimizer = OPTIMIZERS[name]
        narrow, wide = (optimizer.moment_bytes(SQUARE, value_bytes=width) for width in (2, 4))
        assert narrow == pytest.approx(share * wide)


def test_muon_runs_adam_on_tables_and_vectors() -> None:
    tables, vectors = 32000 * 4096, 8192
    kept = OPTIMIZERS["muon"].moment_bytes(LAYER, value_bytes=4)
    assert kept == 4 * (2 * 8192 * 4096 + 2 * tables + 2 * vectors)


def test_row_wise_adagrad_keeps_one_number_per_row_of_a_table() -> None:
    table = WeightShapes(tables=(Matrix(rows=10**6, columns=128),))
    assert OPTIMIZERS["rowwise_adagrad"].moment_bytes(table, value_bytes=4) == 4 * 10**6


def test_small_tensors_stay_in_32_bits_in_8_bit_optimizers() -> None:
    norms = WeightShapes(vectors=1000)
    assert OPTIMIZERS["adam_8bit"].moment_bytes(norms, value_bytes=4) == 8 * 1000


def flops(rows: int, columns: int) -> int:
    return sum(2 * m * n * k for m, n, k in newton_schulz_products(rows, columns))


def test_orthogonalising_a_square_takes_six_cubes_a_step() -> None:
    assert flops(1024, 1024) == 6 * 1024**3


def test_orthogonalising_is_the_same_either_way_up_and_works_on_the_smaller_side() -> None:
    assert flops(512, 2048) == flops(2048, 512) == 2 * 512**2 * (2 * 2048 + 512)


def test_every_alias_means_an_optimizer_and_hides_none() -> None:
    assert set(OPTIMIZER_ALIASES.values()) <= set(OPTIMIZERS)
    assert not set(OPTIMIZER_ALIASES) & set(OPTIMIZERS)
