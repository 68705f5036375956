"""Changed requests solved again: what binds moves the optimum, what does not leaves it where it is."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from planner.cluster import Cluster
from planner.job import Constraints
from planner.plan import Result, Sensitivity, Status
from planner.planning import PlanRequest, plan_training
from planner.profile import Profile
from planner.sensitivity import MORE_MEMORY, with_sensitivity
from planner.strategy import Recompute, RecomputeMode
from planner.units import GIBIBYTE
from planner.workload.presets import preset_workload
from tests.unit.planner.joined import generations, request_on
from tests.unit.planner.settings import request_of, setting


def request(
    *,
    num_devices: int = 4,
    memory_fraction: float = 0.94,
    fixed: Mapping[str, object] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    forbid: tuple[str, ...] = (),
) -> PlanRequest:
    judged = setting(
        model="llama-3-8b",
        cluster="a100-sxm-80gb",
        num_devices=num_devices,
        num_layers=4,
        global_batch_size=32,
        sequence_length=1024,
    )
    constraints = Constraints(
        fixed=fixed or {}, bounds=bounds or {}, forbid=forbid, memory_fraction=memory_fraction
    )
    return request_of(judged, constraints=constraints)


def explained(asked: PlanRequest) -> Result:
    return with_sensitivity(asked, plan_training(asked), explain=True)


def grown(asked: PlanRequest) -> dict[str, Sensitivity]:
    found = with_sensitivity(asked, plan_training(asked), sensitivity=True).sensitivity
    assert found is not None
    return {entry.why: entry for entry in found}


def told(result: Result, word: str) -> str:
    (text,) = [
        entry.text
        for entry in result.explanation
        if entry.pointer.startswith("/sensitivity/") and word in entry.text
    ]
    return text


def step_seconds(result: Result) -> float:
    assert result.prediction is not None
    return result.prediction.step_time_seconds


def test_nothing_is_solved_again_unless_asked() -> None:
    asked = request(num_devices=2)
    result = plan_training(asked)
    assert with_sensitivity(asked, result) is result
    assert result.sensitivity is None


def test_without_the_memory_limit_that_binds_the_optimum_moves() -> None:
    asked = request(memory_fraction=0.12)
    result = explained(asked)
    assert told(result, "Memory").startswith("Memory binds: ")
    assert result.sensitivity is not None
    larger = plan_training(replace(asked, cluster=with_memory(asked.cluster, times=MORE_MEMORY)))
    assert step_seconds(larger) < step_seconds(result)
    assert larger.plan != result.plan
    assert result.sensitivity[0].plan == larger.plan
    assert result.sensitivity[0].step_time_seconds == pytest.approx(step_seconds(larger))


def with_memory(cluster: Cluster, *, times: float) -> Cluster:
    (group,) = cluster.node_groups
    device = replace(group.device, memory_bytes=times * group.device.memory_bytes)
    return replace(cluster, node_groups=(replace(group, device=device),))


def test_memory_that_nobody_needs_does_not_bind() -> None:
    result = explained(request(num_devices=2, fixed={"micro_batch_size": 1}))
    assert told(result, "Memory").startswith("Memory does not bind: ")


@pytest.mark.parametrize(
    ("fixed", "bounds", "words", "change"),
    [
        (
            {"tensor_parallel": 4},
            {},
            "Keeping tensor_parallel at 4 binds",
            {"/constraints/fixed/tensor_parallel": None},
        ),
        (
            {"recompute": Recompute(mode=RecomputeMode.FULL)},
            {},
            "Keeping recompute at full binds",
            {"/constraints/fixed/recompute": None},
        ),
        (
            {},
            {"tensor_parallel": (2, 4)},
            "Keeping tensor_parallel within 2 to 4 binds",
            {"/constraints/bounds/tensor_parallel": None},
        ),
    ],
)
def test_without_the_choice_that_binds_the_optimum_moves(
    fixed: dict[str, object],
    bounds: dict[str, tuple[float, float]],
    words: str,
    change: dict[str, object],
) -> None:
    result = explained(request(fixed=fixed, bounds=bounds))
    assert told(result, "Keeping").startswith(words)
    assert result.sensitivity is not None
    free, moved = plan_training(request()), result.sensitivity[1]
    assert moved.change == change
    assert moved.changes_plan
    assert moved.plan == free.plan
    assert moved.step_time_seconds == pytest.approx(step_seconds(free))
    assert step_seconds(free) < step_seconds(result)


def test_a_choice_that_the_optimum_makes_anyhow_does_not_bind() -> None:
    free = plan_training(request())
    assert free.plan is not None
    result = explained(request(fixed={"tensor_parallel": free.plan.mesh.tensor_parallel}))
    assert " does not bind: " in told(result, "Keeping tensor_parallel")


@pytest.mark.parametrize(
    ("technique", "fixed"),
    [("sharding", {"zero_stage": 0}), ("recompute", {"recompute": RecomputeMode.NONE})],
)
def test_a_technique_is_freed_by_no_longer_forbidding_it(technique: str, fixed: dict[str, object]) -> None:
    result = explained(request(num_devices=2, fixed=fixed, forbid=("offload", technique)))
    assert result.sensitivity is not None
    assert result.sensitivity[1].change == {"/constraints/forbid": ["offload"]}


def test_every_sentence_cites_the_request_that_was_solved_again() -> None:
    result = explained(request(num_devices=2, fixed={"tensor_parallel": 2, "micro_batch_size": 1}))
    assert result.sensitivity is not None
    cited = [entry.pointer for entry in result.explanation if entry.pointer.startswith("/sensitivity/")]
    assert cited == [f"/sensitivity/{number}" for number, _ in enumerate(result.sensitivity)]


def test_more_of_a_machine_is_never_slower_and_says_what_it_changes() -> None:
    asked = request(num_devices=16)
    (group,) = asked.cluster.node_groups
    found = grown(asked)
    memory, network = found["One more GiB of memory per device"], found["Twice the bandwidth between nodes"]
    assert memory.change == {
        "/cluster/node_groups/0/device/memory_bytes": group.device.memory_bytes + GIBIBYTE
    }
    assert network.change == {
        "/cluster/node_groups/0/levels/1/bandwidth_bytes_per_second": 2
        * group.levels[1].bandwidth_bytes_per_second
    }
    devices, sequence = found["Twice the devices"], found["Twice the sequence length"]
    assert devices.change == {"/cluster/num_devices": 32}
    assert devices.changes_plan
    assert sequence.change == {"/job/sequence_length": 2048}
    changes = [entry.relative_change for entry in (memory, network, devices)]
    assert all(change is not None and change <= 0 for change in changes)
    assert sequence.relative_change is not None
    assert sequence.relative_change > 0.5


def test_a_machine_of_one_node_has_no_network_to_make_faster() -> None:
    assert "Twice the bandwidth between nodes" not in grown(request(num_devices=2))


def test_a_network_that_was_measured_itself_is_not_made_faster() -> None:
    asked = request(num_devices=16)
    (published,) = asked.profiles
    own = measured_here(published)
    assert "Twice the bandwidth between nodes" not in grown(replace(asked, profiles=(own,)))


def measured_here(profile: Profile) -> Profile:
    """Return a profile of the very machine: it does not say which links it ran over."""
    facts = {word: fact for word, fact in profile.facts.items() if word != "link_bandwidth_bytes_per_second"}
    return replace(profile, facts=facts)


def test_a_number_of_devices_that_a_system_does_not_have_is_left_out() -> None:
    # Twice five is neither within a node of eight nor a multiple of it.
    assert "Twice the devices" not in grown(request(num_devices=5))


def test_devices_that_nothing_joins_cannot_be_doubled() -> None:
    asked = request(num_devices=2)
    huge = replace(asked.cluster, name="no preset")
    (group,) = huge.node_groups
    lone = replace(huge, node_groups=(replace(group, levels=group.levels[:1]),))
    assert "Twice the devices" not in grown(replace(asked, cluster=lone))


def test_more_memory_of_one_group_of_several_is_that_of_the_picked_group() -> None:
    asked = request_on(generations(8), constraints=Constraints(fixed={"node_group": "h100-sxm"}))
    found = with_sensitivity(asked, plan_training(asked), explain=True).sensitivity
    assert found is not None
    changed = ["/cluster/node_groups/1/device/memory_bytes", "/constraints/allow"]
    assert [list(entry.change) for entry in found] == [[pointer] for pointer in changed]


def test_samples_without_a_sequence_have_none_to_double() -> None:
    asked = request(num_devices=1)
    images = replace(
        asked,
        workload=preset_workload("vit-b-16").with_num_layers(2),
        job=replace(asked.job, sequence_length=None),
    )
    assert "Twice the sequence length" not in grown(images)


def test_what_no_longer_fits_has_a_status_and_no_figures() -> None:
    asked = request(num_devices=2, memory_fraction=0.35)
    constraints = replace(asked.constraints, forbid=("offload",))
    longer = replace(asked, job=replace(asked.job, sequence_length=16384), constraints=constraints)
    found = grown(longer)["Twice the sequence length"]
    assert found.status is Status.INFEASIBLE
    assert (found.plan, found.step_time_seconds, found.relative_change, found.changes_plan) == (None,) * 4


def test_a_search_that_took_all_the_time_leaves_none_for_others() -> None:
    asked = request(num_devices=2)
    result = plan_training(asked)
    assert result.certificate is not None
    late = replace(result, certificate=replace(result.certificate, solve_seconds=1e6))
    found = with_sensitivity(asked, late, explain=True)
    assert found.sensitivity is not None
    assert {entry.status for entry in found.sensitivity} == {Status.UNKNOWN}
    assert found.explanation == result.explanation


def test_what_does_not_fit_is_not_solved_again() -> None:
    asked = request(num_devices=2, memory_fraction=0.05)
    result = plan_training(asked)
    assert result.plan is None
    assert with_sensitivity(asked, result, explain=True, sensitivity=True) is result


def test_what_a_consent_would_be_worth_is_solved() -> None:
    asked = request(fixed={"zero_stage": 1, "data_parallel": 4})
    result = explained(asked)
    text = told(result, "replicas send")
    assert text.startswith("What replicas send by default binds: with quantized communication allowed")
    allowed = replace(asked, constraints=replace(asked.constraints, allow=("quantized_communication",)))
    assert step_seconds(plan_training(allowed)) < step_seconds(result)
    assert "replicas send" not in " ".join(entry.text for entry in explained(allowed).explanation)
