"""A step that would be replayed for ever is refused."""

from dataclasses import replace

import pytest

from api.jobs.effort import MAX_PASSES, refuse_endless
from api.schemas.plan import PlanDocument
from planner.cluster import Cluster
from planner.cluster_presets import cluster_from_preset
from planner.errors import InvalidRequest
from planner.job import Job
from planner.strategy import ShortPlan, TrainingPlan
from tests.unit.api.schemas.test_plan import plan

WHOLE = PlanDocument.model_validate(plan(batch={"micro_batch_size": 1, "num_micro_batches": MAX_PASSES}))


PAIR = cluster_from_preset("h100-sxm", 2)


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
        refuse_endless(endless, job=job(10**9), cluster=cluster_from_preset("h100-sxm", 8))
    assert caught.value.pointer == "/job/global_batch_size"


@pytest.mark.parametrize("usual", [ShortPlan(), ShortPlan(pipeline_parallel=64, virtual_stages=2)])
def test_a_usual_step_is_not(usual: ShortPlan) -> None:
    refuse_endless(usual, job=job(15_360), cluster=cluster_from_preset("h100-sxm", 2048))


def test_a_step_is_counted_with_the_replicas_that_each_node_group_holds() -> None:
    """Two groups of one device hold one replica each, and not two of one stage."""
    (alone,) = cluster_from_preset("h100-sxm", 1).node_groups
    apart = Cluster(name="custom", node_groups=(alone, replace(alone, name="other")))
    refuse_endless(ShortPlan(), job=job(MAX_PASSES), cluster=PAIR)
    with pytest.raises(InvalidRequest):
        refuse_endless(ShortPlan(), job=job(MAX_PASSES), cluster=apart)


def test_the_batch_that_is_offered_is_replayed() -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_endless(ShortPlan(data_parallel=2), job=job(10**9), cluster=PAIR)
    (offered,) = caught.value.nearest_legal
    assert isinstance(offered, int)
    refuse_endless(ShortPlan(data_parallel=2), job=job(offered), cluster=PAIR)
