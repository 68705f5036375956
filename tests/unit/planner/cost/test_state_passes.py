from dataclasses import replace

import pytest

from planner.cost.host_costs import UnitHost
from planner.cost.model import CostModel
from planner.cost.replicas import replicas_of
from planner.cost.state_passes import StatePasses
from planner.optimizers import WeightShapes
from planner.strategy import Mesh, Sharding, ZeroStage
from planner.workload.weights import Holding, Holdings
from tests.unit.planner.settings import setting

HELD = Holdings(dense=Holding(trained=WeightShapes(vectors=2**24)))
SETTING = setting(
    model="gpt-2-124m", num_layers=4, num_devices=4, global_batch_size=8, sequence_length=64,
    framework="pytorch",
)  # fmt: skip
MODEL = CostModel(setting=SETTING, group=SETTING.cluster.node_groups[0], profiles=(), memory_fraction=0.9)
WHOLE = Sharding(zero_stage=ZeroStage.NONE)
OPTIMIZER = replace(WHOLE, zero_stage=ZeroStage.OPTIMIZER, optimizer=4)
GRADIENTS = replace(OPTIMIZER, zero_stage=ZeroStage.PARAMETERS, gradients=4, parameters=4)


def passes(
    sharding: Sharding, *, replicas: int = 4, num_micro_batches: int = 1, reshards: bool = True
) -> UnitHost:
    mesh = Mesh(data_parallel=replicas)
    found = replicas_of(
        MODEL.links(mesh),
        replace(sharding, reshard_after_forward=reshards),
        framework=MODEL.setting.framework,
        widths=MODEL.widths,
    )
    priced = StatePasses(kernels=MODEL.kernels, states=MODEL.states, num_micro_batches=num_micro_batches)
    return priced.of(HELD, found)


def test_one_replica_of_one_micro_batch_copies_nothing() -> None:
    assert passes(WHOLE, replicas=1) == UnitHost()


def test_gradients_are_added_up_from_the_second_micro_batch_on() -> None:
    alone = [passes(WHOLE, replicas=1, num_micro_batches=number).backward.seconds for number in (1, 2, 4)]
    assert alone[0] == 0.0
    # Per micro-batch: one of two, three of four.
    assert 4 * alone[2] == pytest.approx(3 * 2 * alone[1])


def test_whole_gradients_are_copied_together_once_a_step() -> None:
    found = passes(WHOLE)
    assert found.update.seconds > 0.0
    assert found.forward.seconds == found.backward.seconds == 0.0


def test_updated_parameters_are_copied_to_their_places_once_a_step_where_no_pass_gathers_them() -> None:
    gathers_once = replace(GRADIENTS, zero_stage=ZeroStage.GRADIENTS, parameters=1)
    assert passes(OPTIMIZER).update.seconds > passes(gathers_once).update.seconds > 0.0


def test_sharded_parameters_are_copied_to_their_places_in_every_pass_that_gathers_them() -> None:
    freed, kept = passes(GRADIENTS), passes(GRADIENTS, reshards=False)
    assert freed.forward.seconds == kept.forward.seconds > 0.0
    assert freed.backward.seconds > kept.backward.seconds > 0.0
    assert freed.update.seconds == 0.0


def test_sharded_gradients_are_added_up_by_shards() -> None:
    def added(sharding: Sharding) -> float:
        several, one = (passes(sharding, num_micro_batches=number) for number in (2, 1))
        return several.backward.seconds - one.backward.seconds

    assert added(GRADIENTS) < added(WHOLE)
