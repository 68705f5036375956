from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.collective import CollectiveCosts, group_shape
from planner.cost.compute import KernelCosts
from planner.cost.machine_facts import MachineFacts, Place
from planner.cost.model import CostModel
from planner.cost.tally import CONTENTION_FRACTION
from planner.expansion import expand_short_plan
from planner.job import Precision
from planner.plan import Prediction
from planner.played_plan import play
from planner.prediction import predict
from planner.profile import Profile, builtin_profiles
from planner.strategy import ShortPlan
from planner.workload.operators import AttentionCore, Collective, MatrixProduct, Module, Phase
from tests.unit.planner.cost.machines import bench_device, bench_profile, node_group
from tests.unit.planner.profile_documents import profile_document
from tests.unit.planner.settings import request_of, setting

PAYLOAD = 2**16


def overlap(collective: float, kernels: float, *, together: float) -> dict[str, float]:
    return {
        "collective_seconds_alone": collective,
        "kernels_seconds_alone": kernels,
        "collective_seconds_together": together,
        "kernels_seconds_together": 0.9 * together,
    }


def at_once(seconds: float, *, world_size: int = 2, ranks_per_node: int = 2) -> dict[str, Any]:
    return {
        "operation": "all_reduce",
        "world_size": world_size,
        "ranks_per_node": ranks_per_node,
        "payload_bytes": PAYLOAD,
        "seconds": seconds,
    }


def alone_seconds() -> float:
    rows = bench_profile().collectives
    return next(row.seconds for row in rows if (row.world_size, row.payload_bytes) == (2, PAYLOAD))


def loaded(burst: float, held: float) -> dict[str, Any]:
    rank = {"burst_flops_per_second": burst, "sustained_flops_per_second": held}
    quick = {"burst_flops_per_second": 2 * burst, "sustained_flops_per_second": 2 * held}
    disturbed = {"burst_flops_per_second": burst, "sustained_flops_per_second": held / 9}
    return {"ranks": [quick, rank, disturbed]}


def bench_with(**facts: object) -> Profile:
    return replace(bench_profile(), facts=facts)


def launch_profile(device: str, seconds: float) -> Profile:
    row = {"operator": "launch", "dtype": "bf16", "phase": "forward", "shape": {}, "seconds": seconds}
    document = profile_document(kernels=[{**row, "spread_seconds": None, "source": "test"}], device=device)
    return Profile.from_document(document)


def overlapped(device: str, together: float) -> Profile:
    return Profile(name="own", device=device, facts={"overlaps": [overlap(1.0, 1.0, together=together)]})


def facts_of(*profiles: Profile) -> MachineFacts:
    return MachineFacts.of(bench_device(), profiles)


def test_nothing_published_says_how_a_machine_works_under_load() -> None:
    for device in {profile.device for profile in builtin_profiles()}:
        assert MachineFacts.of(bench_device(name=device), builtin_profiles()) == MachineFacts()
    assert facts_of(bench_profile()).contention_fraction == CONTENTION_FRACTION


@pytest.mark.parametrize(
    ("together", "expected"), [(1.0, 0.0), (1.2, 0.25), (1.8, 1.0), (2.5, 1.0), (0.9, 0.0)]
)
def test_contention_is_what_both_take_beyond_the_longer_one(together: float, expected: float) -> None:
    facts = facts_of(bench_with(overlaps=[overlap(0.8, 1.0, together=together)]))
    assert facts.contention_fraction == pytest.approx(expected)
    assert facts.measured == {"contention_fraction"}


def test_groups_at_once_are_compared_with_one_alone_of_the_same_payload() -> None:
    alone = next(
        row.seconds
        for row in bench_profile().collectives
        if (row.world_size, row.payload_bytes) == (2, PAYLOAD)
    )
    facts = facts_of(bench_with(groups_at_once=[at_once(1.5 * alone), at_once(9.0, world_size=3)]))
    assert facts.crowding == {Place.INSIDE: pytest.approx(1.5)}


def test_a_process_that_was_disturbed_does_not_tell_what_load_does_to_a_device() -> None:
    assert facts_of(bench_with(sustained=loaded(1.2e11, 1e11))).load_slowdown == pytest.approx(1.2)
    assert facts_of(bench_with(sustained=loaded(1e11, 1.1e11))).load_slowdown == 1.0


@pytest.mark.parametrize(
    "facts",
    [
        {"overlaps": [{"collective_seconds_alone": 1.0}, "text", overlap(0.0, 1.0, together=1.0)]},
        {"overlaps": 3, "groups_at_once": {"seconds": 1.0}, "sustained": [1, 2]},
        {"groups_at_once": [at_once(1.0) | {"seconds": None}], "sustained": {"ranks": [{}]}},
    ],
)
def test_facts_that_say_nothing_change_nothing(facts: dict[str, object]) -> None:
    assert facts_of(bench_with(**facts)) == MachineFacts()


def test_products_and_attention_take_as_much_longer_as_the_loaded_device_is_slower() -> None:
    plain, slow = (
        KernelCosts(bench_device(), [profile], Precision.FP32)
        for profile in (bench_profile(), bench_with(sustained=loaded(1.5e11, 1e11)))
    )
    op = MatrixProduct(name="product", module=Module.MLP, rows=512, columns=128, inner=128, repeats=3)
    core = AttentionCore(
        name="core",
        module=Module.CORE_ATTENTION,
        batch=2,
        query_length=128,
        key_length=128,
        heads=4,
        kv_heads=4,
        head_dim=64,
        value_dim=64,
        causal=True,
    )
    for phase in (Phase.FORWARD, Phase.INPUT_GRADIENT, Phase.WEIGHT_GRADIENT):
        before, after = (costs.matrix_product(op, phase=phase) for costs in (plain, slow))
        assert after.seconds == pytest.approx(1.5 * before.seconds)
        assert after.provenance is before.provenance
    before, after = (costs.attention(core, phase=Phase.FORWARD) for costs in (plain, slow))
    assert after.seconds == pytest.approx(1.5 * before.seconds)
    assert slow.best_flops_per_second() == pytest.approx(plain.best_flops_per_second() / 1.5)


@given(factor=st.floats(1.0, 8.0), payload=st.integers(1, 2**24))
def test_a_group_beside_others_takes_longer_and_never_longer_than_all_of_them_as_one(
    factor: float, payload: int
) -> None:
    levels = node_group(bench_device(), num_nodes=1, devices_per_node=4, node_bandwidth=1e9).levels[:1]
    group = replace(node_group(bench_device(), num_nodes=1, devices_per_node=4), levels=levels)
    alone = next(
        row.seconds
        for row in bench_profile().collectives
        if (row.world_size, row.payload_bytes) == (2, PAYLOAD)
    )
    plain = CollectiveCosts(group, [bench_profile()])
    crowded = CollectiveCosts(group, [bench_with(groups_at_once=[at_once(factor * alone)])])

    def seconds(costs: CollectiveCosts, size: int) -> float:
        shape = group_shape(group, size=size)
        return costs.seconds(Collective.ALL_REDUCE, payload_bytes=payload, shape=shape).seconds

    assert seconds(plain, 2) <= seconds(crowded, 2) <= seconds(crowded, 4)
    assert seconds(crowded, 4) == seconds(plain, 4)


def prediction(*more: Profile, plan: ShortPlan) -> Prediction:
    given = setting(framework="pytorch", sequence_length=512, num_layers=4)
    model = CostModel(
        setting=given,
        group=given.cluster.node_groups[0],
        profiles=[*request_of(given).profiles, *more],
        memory_fraction=0.94,
    )
    fixed = expand_short_plan(plan, given)
    assert fixed.assignment is not None
    return predict(play(model, fixed.layout, fixed.assignment))


def test_a_step_takes_longer_the_more_its_machine_is_held_up() -> None:
    plan = ShortPlan(zero_stage=3, data_parallel=8)
    device = setting().cluster.node_groups[0].device.name
    steps = [
        prediction(plan=plan),
        *(
            prediction(
                Profile(
                    name="own", device=device, facts={"overlaps": [overlap(1.0, 1.0, together=together)]}
                ),
                plan=plan,
            )
            for together in (1.3, 1.6, 2.0)
        ),
    ]
    seconds = [step.step_time_seconds for step in steps]
    assert seconds == sorted(set(seconds))
    assert prediction(Profile(name="own", device="other"), plan=plan) == steps[0]


def test_a_reduction_beside_backward_hides_as_far_as_was_measured() -> None:
    plan = ShortPlan(zero_stage=0, data_parallel=8)
    device = setting().cluster.node_groups[0].device.name
    free, half, whole = (
        prediction(overlapped(device, together), plan=plan).breakdown_seconds.data_parallel
        for together in (1.0, 1.5, 2.0)
    )
    assert half > free
    assert whole - free == pytest.approx(2 * (half - free))


def test_a_host_that_launches_slowly_holds_small_kernels_up() -> None:
    plan = ShortPlan(zero_stage=0, data_parallel=8)
    device = setting().cluster.node_groups[0].device.name
    usual = prediction(plan=plan)
    quick, slow = (prediction(launch_profile(device, seconds), plan=plan) for seconds in (1e-6, 3e-4))
    assert quick == usual
    assert slow.breakdown_seconds.overhead > usual.breakdown_seconds.overhead
    assert slow.step_time_seconds > usual.step_time_seconds
