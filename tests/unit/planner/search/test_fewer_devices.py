"""Plans that leave devices idle: found where they are faster or the only legal ones."""

from dataclasses import replace

import pytest

from planner.job import Constraints, SolverLimits
from planner.plan import Result, Status
from planner.planning import PlanRequest, plan_training
from planner.search.fewer_devices import FEW_DEVICES, fewer_degrees
from planner.search.space import search_space
from tests.unit.planner.settings import request_of, setting


def small(num_devices: int, global_batch_size: int, **fixed: object) -> PlanRequest:
    given = setting(
        model="gpt-2-124m",
        num_devices=num_devices,
        global_batch_size=global_batch_size,
        sequence_length=1024,
    )
    return replace(
        request_of(given, constraints=Constraints(fixed=fixed)), solver=SolverLimits(time_limit_seconds=120)
    )


def devices_of(result: Result) -> int:
    assert result.plan is not None
    return result.plan.mesh.world_size


def test_devices_stay_idle_where_the_batch_leaves_no_other_way() -> None:
    result = plan_training(small(7, 64, pipeline_parallel=1, tensor_parallel=1, context_parallel=1))
    assert result.status is Status.OPTIMAL
    assert devices_of(result) == 4
    assert result.warnings[-1] == "the plan uses 4 of 7 devices"
    assert result.certificate is not None
    assert result.certificate.dimensions["num_devices"].startswith("searched: all 7, and fewer")


def test_the_best_on_any_number_of_devices_is_the_best_of_those_on_each() -> None:
    alone = {
        devices: plan_training(small(devices, 12, data_parallel=data)).prediction
        for devices, data in ((5, 1), (4, 4), (3, 3))
    }
    times = [prediction.step_time_seconds for prediction in alone.values() if prediction is not None]
    together = plan_training(small(5, 12)).prediction
    assert together is not None
    assert together.step_time_seconds == min(times)


def test_fixed_degrees_may_leave_devices_idle() -> None:
    result = plan_training(
        small(8, 16, tensor_parallel=2, pipeline_parallel=1, context_parallel=1, data_parallel=2)
    )
    assert devices_of(result) == 4


@pytest.mark.parametrize(
    ("num_devices", "tried"), [(12, {1, 2, 3, 4, 6, 8, 12}), (3 * FEW_DEVICES, {1, 2, 3, 4})]
)
def test_many_devices_are_split_as_they_divide(num_devices: int, tried: set[int]) -> None:
    space = replace(
        search_space(setting(model="gpt-2-124m", sequence_length=1024), Constraints()),
        num_devices=num_devices,
    )
    degrees = list(fewer_degrees(space, least=1, most=num_devices - 1))
    worlds = [tensor * context * pipeline * data for tensor, context, pipeline, data in degrees]
    assert max(worlds) <= num_devices - 1
    inside = {tensor * context for tensor, context, _, _ in degrees}
    assert all(number in inside for number in tried if number < num_devices)
    if num_devices > FEW_DEVICES:
        assert all(num_devices % number == 0 for number in inside)


def test_degrees_lie_between_the_least_and_the_most_devices() -> None:
    space = search_space(setting(num_devices=64), Constraints(fixed={"tensor_parallel": 4}))
    worlds = {
        tensor * context * pipeline * data
        for tensor, context, pipeline, data in fewer_degrees(space, least=40, most=63)
        if tensor == 4
    }
    assert min(worlds) >= 40
    assert max(worlds) <= 63
    assert {40, 44, 48, 52, 56, 60} <= worlds
