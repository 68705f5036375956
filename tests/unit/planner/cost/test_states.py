"""States at rest and the update, by optimizer and by what is trained."""

from dataclasses import replace

import pytest

from planner.cluster_presets import cluster_from_preset
from planner.cost.compute import KernelCosts
from planner.cost.states import StateCosts
from planner.expansion import zero_sharding
from planner.footprint import PLAIN
from planner.frameworks import FRAMEWORKS
from planner.job import Precision
from planner.optimizers import OPTIMIZERS, Matrix, WeightShapes
from planner.profile import builtin_profile
from planner.strategy import Sharding, ZeroStage
from planner.workload.weights import Holding

DEVICE = cluster_from_preset("h100-sxm", 8).node_groups[0].device
KERNELS = KernelCosts(DEVICE, [builtin_profile("h100-sxm/published")], Precision.BF16)
FRAMEWORK = FRAMEWORKS["megatron-core"]
SQUARE = WeightShapes(matrices=(Matrix(rows=4096, columns=4096, count=8),))
NONE = zero_sharding(ZeroStage.NONE, replicas=8, framework=FRAMEWORK)
SHARDED = zero_sharding(ZeroStage.OPTIMIZER, replicas=8, framework=FRAMEWORK)
ALL_SHARDED = zero_sharding(ZeroStage.PARAMETERS, replicas=8, framework=FRAMEWORK)


def costs(optimizer: str, *, shards_quantized: bool = True, copies_shards: bool = False) -> StateCosts:
    return StateCosts(
        optimizer=OPTIMIZERS[optimizer],
        widths=FRAMEWORK.widths(Precision.BF16, moment_values=OPTIMIZERS[optimizer].moment_values),
        base_bytes=0.5,
        shards_quantized=shards_quantized,
        copies_shards=copies_shards,
        footprint=PLAIN,
        kernels=KERNELS,
        products=KERNELS,
    )


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_parameter"),
    [
        ("adamw", 4 + 8),
        ("sgd", 4 + 4),
        ("lion", 4 + 4),
        ("muon", 4 + 4),
        ("lamb", 4 + 8),
        ("adamw_8bit", 4 + 2.03125),
        ("adafactor", 4 + 8 / 4096),
    ],
)
def test_master_weight_and_moments(optimizer: str, bytes_per_parameter: float) -> None:
    states = costs(optimizer).at_rest(Holding(trained=SQUARE), NONE, replicas=8)
    assert states.optimizer == pytest.approx(bytes_per_parameter * SQUARE.parameters)


def test_frozen_parameters_have_no_other_states() -> None:
    states = costs("adamw").at_rest(Holding(frozen=1000, quantized=400), NONE, replicas=8)
    assert (states.parameters, states.gradients, states.optimizer) == (2 * 1000 + 400 / 2, 0, 0)


def test_groups_keep_a_copy_beside_what_all_replicas_share() -> None:
    held, near = Holding(trained=SQUARE, frozen=800), replace(ALL_SHARDED, parameters=2)
    whole = 2 * (SQUARE.parameters + 800)
    for copies_shards, shares in ((False, 1 / 2), (True, 1 / 2 + 1 / 8)):
        states = costs("adamw", copies_shards=copies_shards).at_rest(held, near, replicas=8)
        assert states.parameters == whole * shares
    everywhere = costs("adamw", copies_shards=True).at_rest(held, ALL_SHARDED, replicas=8)
    assert everywhere.parameters == whole / 8


@pytest.mark.parametrize(("shards_quantized", "quantized_bytes"), [(True, 400 / 2 / 8), (False, 400 / 2)])
def test_quantized_weights_are_whole_where_a_framework_does_not_shard_them(
    shards_quantized: bool,  # noqa: FBT001 - a case
    quantized_bytes: float,
) -> None:
    holding = Holding(frozen=1000, quantized=400)
    states = costs("adamw", shards_quantized=shards_quantized)
    assert states.at_rest(holding, ALL_SHARDED, replicas=8).parameters == 2 * 1000 / 8 + quantized_bytes
    assert states.gathered_bytes(holding) == 2 * 1000 + (200 if shards_quantized else 0)


def test_an_update_of_nothing_takes_no_time() -> None:
    assert costs("muon").update(WeightShapes(), NONE).seconds == 0


def test_fewer_states_are_updated_in_less_time() -> None:
    seconds = [
        costs(name).update(SQUARE, NONE).seconds
        for name in ("sgd_plain", "adamw_8bit", "lion", "adamw", "lamb")
    ]
    assert seconds == sorted(seconds)


def test_orthogonalising_takes_its_products() -> None:
    """At 60 % or more of the peak, eight squares of 4096 take five steps of six cubes each."""
    muon, lion = (costs(name).update(SQUARE, NONE).seconds for name in ("muon", "lion"))
    at_peak = 8 * 5 * 6 * 4096**3 / DEVICE.peak_flops_per_second["bf16"]
    assert at_peak < muon - lion < at_peak / 0.5


def test_a_shard_group_deals_the_matrices_out() -> None:
    alone, shared = (costs("muon").update(SQUARE, sharding).seconds for sharding in (NONE, SHARDED))
    assert shared == pytest.approx(alone / 8, rel=0.05)


TABLE = WeightShapes(tables=(Matrix(rows=10**6, columns=128),))


@pytest.mark.parametrize("sharding", [NONE, SHARDED, ALL_SHARDED])
def test_tables_that_are_looked_up_rest_whole_and_without_gradients(sharding: Sharding) -> None:
    states = costs("rowwise_adagrad").at_rest(Holding(looked_up=TABLE, touched=500), sharding, replicas=8)
    master, moment = 4 * TABLE.parameters, 4 * 10**6
    assert (states.parameters, states.gradients) == (2 * TABLE.parameters, 0)
    assert states.optimizer == pytest.approx(master + moment)


def test_replicas_average_what_trains_and_the_rows_that_were_touched() -> None:
    both = Holding(trained=SQUARE, frozen=7) + Holding(looked_up=TABLE, touched=500)
    assert both.reduced == SQUARE.parameters + 500
    assert both.parameters == SQUARE.parameters + 7 + TABLE.parameters


def test_an_update_takes_no_less_than_its_arithmetic() -> None:
    slow = replace(costs("adamw"), vector_flops_per_second=1e9)
    assert slow.update(SQUARE, NONE).seconds == pytest.approx(14 * SQUARE.parameters / 1e9)
    assert costs("adamw").update(SQUARE, NONE).seconds < 14 * SQUARE.parameters / 1e9
