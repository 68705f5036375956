"""The schedules that a search tries on a mesh."""

import pytest

from planner.job import Constraints
from planner.search.meshes import schedules
from planner.search.space import search_space
from planner.strategy import Batch, Mesh, Schedule, ScheduleName
from tests.unit.planner.settings import setting

STAGES = Mesh(pipeline_parallel=8)


def tried(framework: str, *, passes: int, version: str | None = None, **fixed: object) -> set[int | None]:
    """Return the numbers of micro-batches that chunks run at a time, None for as many as stages."""
    space = search_space(setting(framework=framework, version=version), Constraints(fixed=fixed))
    batch = Batch(micro_batch_size=1, num_micro_batches=passes)
    return {
        schedule.interleave_group_size
        for schedule in schedules(space, STAGES, batch)
        if schedule.name is ScheduleName.INTERLEAVED
    }


@pytest.mark.parametrize("framework", ["megatron-core", "torchtitan", "any"])
@pytest.mark.parametrize(("passes", "sizes"), [(16, {None}), (12, {12}), (20, {10}), (4, set())])
def test_micro_batches_that_do_not_fill_the_stages_take_larger_turns(
    framework: str, passes: int, sizes: set[int | None]
) -> None:
    assert tried(framework, passes=passes) == sizes


def test_releases_without_such_turns_need_a_multiple_of_the_stages() -> None:
    assert tried("megatron-core", version="0.9", passes=12) == set()


def test_a_schedule_is_tried_as_the_caller_fixed_it() -> None:
    twos = Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=2, interleave_group_size=16)
    assert tried("any", passes=16, schedule=twos) == {16}
