"""The layers of a reference model stand beside the model's own in the full form of a plan."""

from dataclasses import replace

import pytest

from planner.errors import InvalidRequest
from planner.expansion import expand_short_plan
from planner.full_plan import full_plan, read_full_plan
from planner.job import Loss
from planner.legality import Setting
from planner.reference_layers import with_reference_layers, without_reference_layers
from planner.strategy import Recompute, RecomputeMode, ShortPlan, TrainingPlan
from tests.unit.planner.settings import setting

PLAIN = setting()
PAIRS = replace(PLAIN, job=replace(PLAIN.job, loss=Loss.DPO))
SHORT = ShortPlan(pipeline_parallel=2, recompute=Recompute(mode=RecomputeMode.FULL))


def written(given: Setting) -> TrainingPlan:
    fixed = expand_short_plan(SHORT, given)
    assert fixed.assignment is not None
    return full_plan(fixed.layout, fixed.assignment, given)


def test_every_layer_has_its_twin_and_nothing_of_it_runs_again() -> None:
    chunk = written(PAIRS).stages[0].chunks[0]
    listed = [(layers.kind, layers.count, layers.of, layers.recompute.mode) for layers in chunk.layers]
    assert listed == [
        ("embedding", 1, None, RecomputeMode.NONE),
        ("embedding", 1, "reference", RecomputeMode.NONE),
        ("decoder", 16, None, RecomputeMode.FULL),
        ("decoder", 16, "reference", RecomputeMode.NONE),
    ]


def test_a_plan_comes_back_as_it_was_written() -> None:
    plan = written(PAIRS)
    fixed = read_full_plan(plan, PAIRS)
    assert fixed.violations == ()
    assert fixed.assignment == expand_short_plan(SHORT, PAIRS).assignment
    assert full_plan(fixed.layout, fixed.assignment or (), PAIRS) == plan


def test_the_reference_may_be_left_out() -> None:
    plan = written(PLAIN)
    assert without_reference_layers(plan) == plan
    assert read_full_plan(plan, PAIRS).assignment == read_full_plan(written(PAIRS), PAIRS).assignment
    assert without_reference_layers(with_reference_layers(plan)) == plan


def test_a_reference_on_another_stage_is_refused() -> None:
    plan = written(PAIRS)
    first, second = plan.stages
    (own, other) = first.chunks[0], second.chunks[0]
    moved = tuple(layers for layers in own.layers if layers.of is None)
    stages = (
        replace(first, chunks=(replace(own, layers=moved),)),
        replace(
            second,
            chunks=(replace(other, layers=(*(x for x in own.layers if x.of == "reference"), *other.layers)),),
        ),
    )
    with pytest.raises(InvalidRequest) as caught:
        read_full_plan(replace(plan, stages=stages), PAIRS)
    assert caught.value.pointer == "/plan/stages/0/chunks/0/layers"


def test_without_a_reference_no_layers_are_of_one() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_full_plan(written(PAIRS), PLAIN)
    assert caught.value.pointer.endswith("/of")
