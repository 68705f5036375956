"""What stages hold: the same where their layers are the same, as if each were counted by itself."""

from planner.cluster_presets import cluster_from_preset
from planner.job import Constraints, Job, SolverLimits
from planner.plan import Prediction, StageMemory
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


def of_scattering_ranks(micro_batch_size: int) -> StageMemory:
    """Return the memory of 8 ranks that scatter outputs, with a host far ahead of them."""
    request = PlanRequest(
        workload=preset_workload("llama-2-7b"),
        cluster=cluster_from_preset("h100-sxm", 8),
        job=Job(global_batch_size=4 * micro_batch_size, sequence_length=4096, framework="nanotron"),
        constraints=Constraints(),
        solver=SolverLimits(),
        profiles=(builtin_profile("h100-sxm/published"),),
    )
    plan = ShortPlan(tensor_parallel=8, sequence_parallel=True, micro_batch_size=micro_batch_size)
    prediction = evaluate_plan(request, plan).prediction
    assert prediction is not None
    (stage,) = prediction.memory
    return stage


def test_what_is_withheld_fills_a_device_and_never_overflows_it() -> None:
    withheld = [of_scattering_ranks(size) for size in (8, 16, 20)]
    assert all(stage.fits for stage in withheld)
    assert withheld[0].peak_bytes < withheld[0].capacity_bytes
    assert [stage.peak_bytes for stage in withheld[1:]] == [stage.capacity_bytes for stage in withheld[1:]]


def test_what_is_needed_beside_it_does_not_fit_where_it_is_too_much() -> None:
    stage = of_scattering_ranks(32)
    assert not stage.fits
    assert stage.peak_bytes > stage.capacity_bytes
    # Context, communicators and fragments are left of it.
    assert stage.breakdown_bytes.framework < 0.1 * stage.peak_bytes
