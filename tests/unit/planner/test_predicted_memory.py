"""What stages hold: the same where their layers are the same, as if each were counted by itself."""

from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, SolverLimits
from planner.plan import Prediction
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profile
from planner.strategy import Schedule, ScheduleName, ShortPlan
from planner.workload.presets import preset_workload


def predicted(plan: ShortPlan) -> Prediction:
    request = PlanRequest(
        workload=preset_workload("gpt-2-124m"),
        cluster=cluster_from_preset("a100-sxm-80gb", 4),
        job=Job(global_batch_size=8, sequence_length=1024),
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=(builtin_profile("a100-sxm-80gb/published"),),
    )
    prediction = evaluate_plan(request, plan).prediction
    assert prediction is not None
    return prediction


def test_stages_with_equal_layers_have_equal_states_and_ends_have_more() -> None:
    memory = predicted(ShortPlan(pipeline_parallel=4, layers_per_stage=(3, 3, 3, 3))).memory
    states = [stage.breakdown_bytes.parameters for stage in memory]
    assert states[1] == states[2] < min(states[0], states[3])


def test_equal_stages_hold_fewer_micro_batches_the_later_they_come() -> None:
    memory = predicted(ShortPlan(pipeline_parallel=4, layers_per_stage=(3, 3, 3, 3))).memory
    kept = [stage.breakdown_bytes.activations for stage in memory[:3]]
    assert kept[1] / kept[2] == 3 / 2
    assert kept[0] > kept[1]


def test_stages_with_more_layers_hold_more() -> None:
    memory = predicted(ShortPlan(pipeline_parallel=4, layers_per_stage=(2, 3, 5, 2))).memory
    assert memory[1].breakdown_bytes.parameters / memory[2].breakdown_bytes.parameters == 3 / 5
    assert memory[2].breakdown_bytes.gradients > memory[1].breakdown_bytes.gradients


def test_chunks_of_a_stage_are_counted_together() -> None:
    schedule = Schedule(name=ScheduleName.INTERLEAVED, virtual_stages=2)
    looped = predicted(ShortPlan(pipeline_parallel=2, virtual_stages=2, schedule=schedule)).memory
    plain = predicted(ShortPlan(pipeline_parallel=2)).memory
    assert [one.breakdown_bytes.optimizer for one in looped] == [
        one.breakdown_bytes.optimizer for one in plain
    ]
