from dataclasses import replace
from typing import Any

import pytest

from planner.cluster import Device
from planner.cost.compute import KernelCosts
from planner.cost.host_costs import measured_host
from planner.cost.host_times import BothWays, HostTimes, ProgramRun, operator_counts
from planner.cost.model import CostModel
from planner.expansion import expand_short_plan
from planner.frameworks import framework_by_name
from planner.job import Constraints, Precision
from planner.plan import Prediction
from planner.planning import PlanRequest, plan_training
from planner.played_plan import play
from planner.prediction import predict
from planner.profile import Profile
from planner.setting import Setting
from planner.strategy import Mesh, Recompute, RecomputeMode, ScheduleName, ShortPlan
from planner.strategy import Schedule as PlanSchedule
from tests.unit.planner.settings import request_of, setting

MILLISECOND = 1e-3
PROCESSOR = Device(
    name="bench-cpu",
    memory_bytes=2e11,
    peak_flops_per_second={"bf16": 1e15},
    memory_bandwidth_bytes_per_second=1e13,
    architecture="cpu",
)
ACCELERATOR = replace(PROCESSOR, name="bench-gpu", architecture="hopper")
SECONDS = {
    ("plain", "forward"): 1.0,
    ("plain", "backward"): 2.0,
    ("checkpoint", "forward"): 1.5,
    ("checkpoint", "backward"): 3.5,
    ("tensor_parallel", "forward"): 4.0,
    ("tensor_parallel", "backward"): 6.0,
    ("sequence_parallel", "forward"): 5.0,
    ("sequence_parallel", "backward"): 8.0,
    ("sharded", "forward"): 3.0,
    ("sharded", "backward"): 5.0,
    ("pipeline", "micro_batch"): 14.0,
    ("update", "layer"): 0.25,
    ("update", "step"): 0.5,
}


def program(**changes: object) -> dict[str, Any]:
    rows = [
        {"program": way, "phase": phase, "seconds": value * MILLISECOND}
        for (way, phase), value in SECONDS.items()
    ]
    block = {"hidden": 8, "ffn": 8, "heads": 2, "kv_heads": 2, "head_dim": 4}
    return {"block": block, "sequence_length": 4, "layers": 4, "rows": rows} | changes


def profile(device: Device, **changes: object) -> Profile:
    return Profile(name="own", device=device.name, facts={"program": program(**changes)})


def times(*, kernels: BothWays | None = None) -> HostTimes:
    run = ProgramRun.of(PROCESSOR, [profile(PROCESSOR)])
    assert run is not None
    return HostTimes.of(run, device=PROCESSOR, kernels=kernels or BothWays())


def scaled(device: Device, factor: float) -> Profile:
    """Return a profile whose host takes so many times as long."""
    rows = [{**row, "seconds": factor * row["seconds"]} for row in program()["rows"]]
    return profile(device, rows=rows)


def request(device: Device, *, framework: str = "pytorch", host: float | None = 1.0) -> PlanRequest:
    given = setting(
        model="gpt-2-124m", num_layers=4, num_devices=2, global_batch_size=8, sequence_length=64,
        framework=framework,
    )  # fmt: skip
    (group,) = given.cluster.node_groups
    cluster = replace(given.cluster, node_groups=(replace(group, device=device),))
    plain = request_of(given)
    return replace(plain, cluster=cluster, profiles=() if host is None else (scaled(device, host),))


def predicted(plan: ShortPlan, given: PlanRequest) -> Prediction:
    here = Setting(
        workload=given.workload,
        cluster=given.cluster,
        job=given.job,
        framework=setting(framework=given.job.framework).framework,
    )
    model = CostModel(
        setting=here, group=given.cluster.node_groups[0], profiles=given.profiles, memory_fraction=0.9
    )
    fixed = expand_short_plan(plan, here)
    assert fixed.assignment is not None
    return predict(play(model, fixed.layout, fixed.assignment))


def added_seconds(plan: ShortPlan) -> float:
    """Return what a processor's measured host adds to a step: all that one without a host would not take."""
    measured = predicted(plan, request(PROCESSOR)).step_time_seconds
    return measured - predicted(plan, request(PROCESSOR, host=0.0)).step_time_seconds


def test_host_takes_what_the_kernels_of_the_block_leave() -> None:
    host = times(kernels=BothWays(forward=0.2 * MILLISECOND, backward=0.5 * MILLISECOND))
    run = ProgramRun.of(PROCESSOR, [profile(PROCESSOR)])
    assert run is not None
    counts = operator_counts(run.block.operators(run.cut))

    assert host.operator.forward * counts.forward == pytest.approx(0.8 * MILLISECOND)
    assert host.operator.backward * counts.backward == pytest.approx(1.5 * MILLISECOND)
    assert host.tensor_parallel.forward * counts.forward == pytest.approx(3 * MILLISECOND)
    assert host.sequence_parallel.backward * counts.backward == pytest.approx(6 * MILLISECOND)
    assert (host.sharded.forward, host.sharded.backward) == pytest.approx((2e-3, 3e-3))
    assert (host.recomputed.forward, host.recomputed.backward) == pytest.approx((0.5e-3, 0.5e-3))
    assert host.pass_seconds == pytest.approx((14 - 4 * 3) / 2 * MILLISECOND)
    assert (host.layer_update_seconds, host.step_seconds) == pytest.approx((0.25e-3, 0.5e-3))


def test_backward_pass_in_two_takes_what_the_later_of_two_stages_takes_longer() -> None:
    stages = {("stages", "micro_batch"): 28 * MILLISECOND, ("split_stages", "micro_batch"): 40 * MILLISECOND}
    run = ProgramRun.of(PROCESSOR, [profile(PROCESSOR)])
    assert run is not None
    host = HostTimes.of(replace(run, rows={**run.rows, **stages}), device=PROCESSOR, kernels=BothWays())
    counts = operator_counts(run.block.operators(run.cut))

    # Two stages of four layers of 3 ms have four passes, and a third one each where backward is split.
    assert (host.pass_seconds, host.listed_pass_seconds) == pytest.approx((1 * MILLISECOND, 1 * MILLISECOND))
    assert 4 * counts.backward * host.split_seconds == pytest.approx((40 - 28 - 2) * MILLISECOND)
    assert (times().split_seconds, times().listed_pass_seconds) == (0.0, times().pass_seconds)


def test_passes_that_torch_runs_from_a_list_take_longer() -> None:
    rows = [*program()["rows"], {"program": "stages", "phase": "micro_batch", "seconds": 32 * MILLISECOND}]
    given = request(PROCESSOR)
    slower = replace(given, profiles=(profile(PROCESSOR, rows=rows),))
    plans = [
        ShortPlan(
            pipeline_parallel=2, micro_batch_size=1, schedule=PlanSchedule(name=name, virtual_stages=chunks)
        )
        for name, chunks in ((ScheduleName.ONE_FORWARD_ONE_BACKWARD, 1), (ScheduleName.INTERLEAVED, 2))
    ]
    written, listed = ([predicted(plan, one).step_time_seconds for one in (given, slower)] for plan in plans)
    assert written[0] == written[1]
    # Of eight micro-batches a stage runs four passes each, of 2 ms rather than 1 ms.
    assert listed[1] > listed[0] + 8 * 4 * 0.9 * MILLISECOND


def host_beside_products(slower: float | None) -> HostTimes:
    """Return the host where a product took so many times as long among its rows; None: nobody ran one."""
    device = replace(PROCESSOR, peak_flops_per_second={"fp32": 1e11}, memory_bandwidth_bytes_per_second=1e9)
    sizes = {"rows": 128, "columns": 256, "inner": 256}
    shapes = {
        "forward": (128, 256, 256),
        "input_gradient": (128, 256, 256),
        "weight_gradient": (256, 256, 128),
    }
    kernels = [
        {
            "operator": "matrix_product",
            "dtype": "fp32",
            "phase": phase,
            "shape": dict(zip("mnk", shape, strict=True)),
            "seconds": 1e-4,
        }
        for phase, shape in shapes.items()
    ]
    rows = program()["rows"]
    if slower is not None:
        rows += [{"program": "product", "phase": phase, "seconds": slower * 1e-4} for phase in shapes]
    document = {
        "format": "meshplan-profile/1",
        "name": "own",
        "device": device.name,
        "software": {},
        "kernels": kernels,
    }
    facts = {"program": program(rows=rows, product=sizes)}
    profiles = [Profile.from_document({**document, "facts": facts})]
    costs = KernelCosts.opened(device, profiles, Precision.FP32)
    host = measured_host(framework_by_name("pytorch"), device, profiles, kernels=costs)
    assert host is not None
    return host


def test_kernels_count_at_the_pace_that_the_processor_had_meanwhile() -> None:
    usual = host_beside_products(None)
    assert host_beside_products(1.0).operator == usual.operator
    assert host_beside_products(2.0).operator.forward < usual.operator.forward
    assert host_beside_products(0.5).operator.backward > usual.operator.backward


def test_split_layers_take_longer_for_each_operator() -> None:
    host = times()
    split = host.on(Mesh(tensor_parallel=2))
    both = host.on(Mesh(tensor_parallel=2, sequence_parallel=True))
    assert host.on(Mesh(data_parallel=2)) == host
    assert host.operator.forward < split.operator.forward < both.operator.forward
    assert host.scaled(2.0).operator == host.operator.times(2.0)


def test_profile_that_lacks_a_way_says_nothing() -> None:
    rows = program()["rows"][1:]
    assert ProgramRun.of(PROCESSOR, [profile(PROCESSOR, rows=rows)]) is None
    assert ProgramRun.of(PROCESSOR, [profile(ACCELERATOR)]) is None
    assert ProgramRun.of(PROCESSOR, [Profile(name="bare", device=PROCESSOR.name)]) is None


def test_several_machines_stand_for_their_median() -> None:
    slow = [{**row, "seconds": 3 * row["seconds"]} for row in program()["rows"]]
    run = ProgramRun.of(PROCESSOR, [profile(PROCESSOR), profile(PROCESSOR), profile(PROCESSOR, rows=slow)])
    assert run is not None
    assert run.way("plain") == BothWays(forward=1.0 * MILLISECOND, backward=2.0 * MILLISECOND)


@pytest.mark.parametrize(
    ("plan", "least", "most"),
    [
        # Four layers of 3 ms and the ends' operators, once for each micro-batch.
        (ShortPlan(data_parallel=2, zero_stage=0, micro_batch_size=4), 10e-3, 24e-3),
        (ShortPlan(data_parallel=2, zero_stage=0, micro_batch_size=1), 40e-3, 96e-3),
        # Gathers and scatters of four layers and the ends take 5 ms each.
        (ShortPlan(data_parallel=2, zero_stage=3, micro_batch_size=4), 30e-3, 50e-3),
        (ShortPlan(tensor_parallel=2, micro_batch_size=8), 40e-3, 90e-3),
        (
            ShortPlan(
                data_parallel=2,
                zero_stage=0,
                micro_batch_size=4,
                recompute=Recompute(mode=RecomputeMode.FULL),
            ),
            17e-3,
            33e-3,
        ),
    ],
)
def test_time_of_a_processors_host_comes_on_top_of_its_kernels(
    plan: ShortPlan, least: float, most: float
) -> None:
    assert least < added_seconds(plan) < most


def test_ranks_that_meet_in_every_layer_wait_for_the_slowest() -> None:
    usual, uneven = request(PROCESSOR), request(PROCESSOR)
    facts = {**usual.profiles[0].facts["program"], "waiting_fraction": 0.1}
    uneven = replace(uneven, profiles=(replace(usual.profiles[0], facts={"program": facts}),))
    split, replicas = (
        ShortPlan(tensor_parallel=2, micro_batch_size=8),
        ShortPlan(data_parallel=2, zero_stage=0),
    )

    before, after = (predicted(split, given) for given in (usual, uneven))
    assert before.step_time_seconds < after.step_time_seconds < 1.1 * before.step_time_seconds
    assert after.breakdown_seconds.compute == pytest.approx(before.breakdown_seconds.compute, rel=1e-4)
    assert predicted(replicas, uneven).step_time_seconds == predicted(replicas, usual).step_time_seconds


def test_passes_of_a_pipeline_take_as_long_as_measured() -> None:
    plan = ShortPlan(
        pipeline_parallel=2,
        micro_batch_size=1,
        schedule=PlanSchedule(name=ScheduleName.ONE_FORWARD_ONE_BACKWARD),
    )
    parts = predicted(plan, request(PROCESSOR)).breakdown_seconds
    # Eight micro-batches, two passes of 1 ms each; transfers come on top.
    assert parts.pipeline == pytest.approx(16e-3, rel=0.3)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1"])
def test_search_minimises_what_a_schedules_passes_take(schedule: str) -> None:
    stages = [
        {"program": name, "phase": "micro_batch", "seconds": seconds * MILLISECOND}
        for name, seconds in (("stages", 32), ("split_stages", 50))
    ]
    facts = program(rows=[*program()["rows"], *stages], threads_per_core=[2, 2])
    given = replace(
        request(PROCESSOR),
        profiles=(Profile(name="own", device=PROCESSOR.name, facts={"program": facts}),),
        constraints=Constraints(fixed={"pipeline_parallel": 2, "schedule": schedule}),
    )
    result = plan_training(given)
    assert result.prediction is not None
    assert result.certificate is not None
    assert result.certificate.value == pytest.approx(result.prediction.step_time_seconds)


def test_host_of_an_accelerator_is_hidden_where_kernels_take_longer() -> None:
    plan = ShortPlan(data_parallel=2, zero_stage=0, micro_batch_size=4)
    on_top = predicted(plan, request(PROCESSOR)).step_time_seconds
    launched = predicted(plan, request(ACCELERATOR)).step_time_seconds
    assert launched < on_top


def test_other_programs_keep_their_own_pace() -> None:
    plan = ShortPlan(data_parallel=2, zero_stage=1, micro_batch_size=4)
    with_facts = predicted(plan, request(PROCESSOR, framework="megatron-core"))
    without = predicted(plan, request(PROCESSOR, framework="megatron-core", host=None))
    assert with_facts.step_time_seconds == without.step_time_seconds
