"""Ranks that share the cores of a processor."""

from dataclasses import replace

import pytest

from planner.plan import Prediction
from planner.strategy import Schedule, ScheduleName, ShortPlan
from tests.unit.planner.cost.test_host_times import PROCESSOR, predicted, request

GPIPE = Schedule(name=ScheduleName.GPIPE)


def on_shared_cores(plan: ShortPlan, *threads_per_core: float) -> Prediction:
    given = request(PROCESSOR)
    (profile,) = given.profiles
    facts = {"program": {**profile.facts["program"], "threads_per_core": threads_per_core}}
    return predicted(plan, replace(given, profiles=(replace(profile, facts=facts),)))


@pytest.mark.parametrize(
    ("plan", "factor"),
    [
        # Replicas work at the same time, each for its share of a core.
        (ShortPlan(data_parallel=2, zero_stage=0, micro_batch_size=4), 2.0),
        # Each of two stages with one micro-batch works half of the time.
        (ShortPlan(pipeline_parallel=2, micro_batch_size=8, schedule=GPIPE), 1 + 1 / 2),
        # With eight they work in eight slots of nine.
        (ShortPlan(pipeline_parallel=2, micro_batch_size=1, schedule=GPIPE), 1 + 8 / 9),
    ],
)
def test_work_takes_longer_as_far_as_others_work_meanwhile(plan: ShortPlan, factor: float) -> None:
    alone, shared = (on_shared_cores(plan, *threads).breakdown_seconds for threads in ((1, 1), (2, 2)))
    assert shared.compute == pytest.approx(factor * alone.compute, rel=1e-3)
    assert shared.optimizer == pytest.approx(factor * alone.optimizer, rel=1e-3)
    # What ranks send each other takes as long as before.
    assert shared.data_parallel == pytest.approx(alone.data_parallel, rel=1e-3, abs=1e-9)


def test_ranks_with_cores_of_their_own_take_what_they_take_alone() -> None:
    plan = ShortPlan(data_parallel=2, zero_stage=0, micro_batch_size=4)
    assert on_shared_cores(plan, 1, 1) == predicted(plan, request(PROCESSOR))


def test_replicas_wait_for_the_fullest_core_and_stages_meet_others_on_the_usual_one() -> None:
    replicas = ShortPlan(data_parallel=2, zero_stage=0, micro_batch_size=4)
    stages = ShortPlan(pipeline_parallel=2, micro_batch_size=8, schedule=GPIPE)
    uneven = [on_shared_cores(plan, 2, 1).breakdown_seconds.compute for plan in (replicas, stages)]
    assert uneven[0] == pytest.approx(on_shared_cores(replicas, 2, 2).breakdown_seconds.compute)
    assert uneven[1] == pytest.approx(
        1.25 * on_shared_cores(stages, 1, 1).breakdown_seconds.compute, rel=1e-3
    )
