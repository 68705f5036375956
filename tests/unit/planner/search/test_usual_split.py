"""Where the framework spreads the layers itself, its one split is what a search finds."""

from dataclasses import replace

import pytest

from planner.cost.model import CostModel
from planner.job import Constraints
from planner.planning import evaluate_plan, plan_training
from planner.rules.layers import usual_split
from planner.search.master import Excluded, Solution
from planner.search.meshes import meshes, schedules, variants
from planner.search.space import search_space
from planner.search.usual_split import play_usual_split
from planner.setting import Setting
from planner.strategy import Layout
from tests.unit.planner.settings import request_of, setting

TWO_STAGES = Constraints(fixed={"pipeline_parallel": 2})


def pipelined(framework: str, version: str | None = None) -> Setting:
    return setting(
        framework=framework,
        version=version,
        num_devices=4,
        num_layers=6,
        global_batch_size=8,
        sequence_length=2048,
    )


@pytest.mark.parametrize(
    ("framework", "version", "decided"),
    [
        ("nanotron", None, "fixed by framework"),
        ("maxtext", None, "fixed by framework"),
        ("megatron-core", "0.12", "not searched: equally many"),
    ],
)
def test_a_plan_has_the_layers_that_the_framework_gives_its_stages(
    framework: str, version: str | None, decided: str
) -> None:
    judged = pipelined(framework, version)
    request = request_of(judged, constraints=TWO_STAGES)
    result = plan_training(request)
    assert result.plan is not None
    assert result.certificate is not None
    assert result.certificate.proven_optimal
    assert result.certificate.dimensions["layers_per_stage"] == decided
    counts = tuple(
        sum(layers.count for layers in chunk.layers if layers.kind == "decoder")
        for stage in result.plan.stages
        for chunk in stage.chunks
    )
    layout = Layout(
        mesh=result.plan.mesh,
        batch=result.plan.batch,
        schedule=result.plan.schedule,
        sharding=result.plan.sharding,
        recompute=(),
    )
    assert counts == usual_split(judged, layout)
    again = evaluate_plan(request_of(judged), result.plan)
    assert again.violations == ()
    assert again.prediction is not None
    assert result.prediction is not None
    assert again.prediction.step_time_seconds == result.prediction.step_time_seconds


def test_a_split_that_is_too_slow_or_too_large_is_excluded() -> None:
    judged = pipelined("maxtext")
    space = search_space(judged, TWO_STAGES)
    mesh, batch = next(meshes(space))
    layout = replace(next(variants(space, mesh, batch)), schedule=next(schedules(space, mesh, batch)))
    request = request_of(judged)
    model = CostModel(
        setting=judged,
        group=judged.cluster.node_groups[0],
        profiles=request.profiles,
        memory_fraction=1.0,
    )
    problem = model.problem(layout)
    found = play_usual_split(problem, layout, judged)
    assert isinstance(found, Solution)
    assert found.is_proven
    assert play_usual_split(problem, layout, judged, cutoff_ns=found.makespan_ns) == found
    beaten = play_usual_split(problem, layout, judged, cutoff_ns=found.makespan_ns - 1)
    assert beaten == Excluded(lower_bound_ns=found.makespan_ns)
    crammed = play_usual_split(replace(problem, limit_bytes=0), layout, judged)
    assert crammed == Excluded(lower_bound_ns=None)
