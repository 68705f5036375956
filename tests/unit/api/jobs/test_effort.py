"""A step that would be replayed for ever is refused."""

import pytest

from api.jobs.effort import MAX_PASSES, refuse_endless
from api.schemas.plan import PlanDocument
from planner.errors import InvalidRequest
from planner.job import Job
from planner.strategy import ShortPlan, TrainingPlan
from tests.unit.api.schemas.test_plan import plan

WHOLE = PlanDocument.model_validate(plan(batch={"micro_batch_size": 1, "num_micro_batches": MAX_PASSES}))


def job(global_batch_size: int) -> Job:
    return Job(global_batch_size=global_batch_size, sequence_length=128)


@pytest.mark.parametrize(
    "endless",
    [
        ShortPlan(),
        ShortPlan(data_parallel=2, pipeline_parallel=4, virtual_stages=2),
        ShortPlan(micro_batch_size=8, extra={"num_micro_batches": MAX_PASSES}),
        WHOLE.to_plan(),
    ],
)
def test_an_endless_step_is_refused_with_a_batch_that_is_none(endless: ShortPlan | TrainingPlan) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_endless(endless, job=job(10**9), num_devices=8)
    assert caught.value.pointer == "/job/global_batch_size"


@pytest.mark.parametrize("usual", [ShortPlan(), ShortPlan(pipeline_parallel=64, virtual_stages=2)])
def test_a_usual_step_is_not(usual: ShortPlan) -> None:
    refuse_endless(usual, job=job(15_360), num_devices=2048)


def test_the_batch_that_is_offered_is_replayed() -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_endless(ShortPlan(data_parallel=2), job=job(10**9), num_devices=2)
    (offered,) = caught.value.nearest_legal
    assert isinstance(offered, int)
    refuse_endless(ShortPlan(data_parallel=2), job=job(offered), num_devices=2)
