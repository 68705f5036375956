"""States and activations on the host: what leaves the device, what comes back, and what of it shows."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.geometry import stages_of_nodes
from planner.cost.layout_costs import LayoutCosts, PartCost
from planner.cost.model import CostModel
from planner.cost.tally import Cause
from planner.expansion import expand_short_plan
from planner.plan import Prediction, Status
from planner.planning import evaluate_plan
from planner.profile import builtin_profile
from planner.setting import Setting
from planner.strategy import DEFAULT_RANK_ORDER, HostShares, Layout, Mesh, ShortPlan
from tests.unit.planner.settings import request_of, setting

A100 = [builtin_profile("a100-sxm-80gb/published")]
SHARES = st.floats(0, 1)
ALL = {"optimizer": 1.0, "parameters": 1.0, "gradients": 1.0}


def judged(*, framework: str = "any", model: str = "llama-2-13b", **changes: object) -> Setting:
    facts = {"cluster": "a100-sxm-80gb", "sequence_length": 2048, "global_batch_size": 64}
    return setting(model=model, framework=framework, **(facts | changes))  # type: ignore[arg-type]


def with_host(given_setting: Setting, **changes: float) -> Setting:
    """Return a setting whose hosts differ in some facts."""
    (group,) = given_setting.cluster.node_groups
    assert group.host is not None
    host = replace(group.host, **changes)  # type: ignore[arg-type]  # fields of a host
    cluster = replace(given_setting.cluster, node_groups=(replace(group, host=host),))
    return replace(given_setting, cluster=cluster)


def model_of(given_setting: Setting) -> CostModel:
    (group,) = given_setting.cluster.node_groups
    return CostModel(setting=given_setting, group=group, profiles=A100, memory_fraction=0.94)


def layout_of(given_setting: Setting, offload: Mapping[str, float], **plan: object) -> Layout:
    short = ShortPlan(**({"zero_stage": 3} | plan), offload=offload)  # type: ignore[arg-type]
    return expand_short_plan(short, given_setting).layout


def costs(given_setting: Setting, offload: Mapping[str, float], **plan: object) -> LayoutCosts:
    return model_of(given_setting).costs(layout_of(given_setting, offload, **plan))


def prediction(given_setting: Setting, offload: Mapping[str, float], **plan: object) -> Prediction:
    request = replace(request_of(given_setting), profiles=tuple(A100))
    short = ShortPlan(**({"zero_stage": 3} | plan), offload=offload)  # type: ignore[arg-type]
    result = evaluate_plan(request, short)
    assert result.status in {Status.FITS, Status.DOES_NOT_FIT}
    assert result.prediction is not None
    return result.prediction


def seconds(part: PartCost) -> tuple[float, float, float]:
    return (part.forward.seconds, part.backward.seconds, part.optimizer.seconds)


@given(optimizer=SHARES, parameters=SHARES, gradients=SHARES)
@settings(max_examples=30, deadline=None)
def test_every_state_rests_once_on_the_device_or_on_its_host(
    optimizer: float, parameters: float, gradients: float
) -> None:
    offload = {"optimizer": optimizer, "parameters": parameters, "gradients": gradients}
    there = costs(judged(), offload).layers[0]
    here = costs(judged(), {}).layers[0]
    copies = max(optimizer - gradients, 0) * here.states.gradients
    assert there.states.total + there.host_bytes - copies == pytest.approx(here.states.total)
    assert there.states.optimizer == pytest.approx((1 - optimizer) * here.states.optimizer)
    assert there.states.gradients == pytest.approx((1 - gradients) * here.states.gradients)


@given(
    lower=st.fixed_dictionaries(
        dict.fromkeys(("optimizer", "parameters", "gradients", "activations"), SHARES)
    ),
    more=SHARES,
)
@settings(max_examples=30, deadline=None)
def test_a_larger_share_on_the_host_never_saves_time(lower: dict[str, float], more: float) -> None:
    # A larger share of gradients alone spares the copy before the update.
    higher = {state: share + more * (1 - share) for state, share in lower.items()}
    less, greater = (costs(judged(), shares).layers[0] for shares in (lower, higher | {"gradients": 1.0}))
    without = costs(judged(), {}).layers[0]
    assert all(a <= b + 1e-12 for a, b in zip(seconds(less)[:2], seconds(greater)[:2], strict=True))
    for there in (less, greater):
        assert all(a <= b for a, b in zip(seconds(without), seconds(there), strict=True))
        assert there.saved_bytes <= without.saved_bytes


@given(factor=st.floats(1, 100), what=st.sampled_from(["link", "memory_bandwidth"]))
@settings(max_examples=20, deadline=None)
def test_a_faster_host_never_costs_time(factor: float, what: str) -> None:
    slow = judged()
    host = slow.cluster.node_groups[0].host
    assert host is not None
    field = f"{what}_bytes_per_second"
    fast = with_host(slow, **{field: factor * getattr(host, field)})
    shares = {**ALL, "activations": 1.0}
    before, after = (costs(each, shares).layers[0] for each in (slow, fast))
    assert all(a <= b + 1e-12 for a, b in zip(seconds(after), seconds(before), strict=True))


def test_devices_that_share_a_link_copy_at_half_its_rate() -> None:
    alone, shared = judged(), with_host(judged(), devices_per_link=2)
    slow, quick = (model_of(each).hosts for each in (shared, alone))
    assert slow is not None
    assert quick is not None
    assert slow.copy_bytes_per_second == quick.copy_bytes_per_second / 2 == 12.5e9


def test_the_update_of_13_billion_parameters_takes_a_host_of_eight_a100_as_long_as_was_reported() -> None:
    """ColossalAI issue 4719: 27 s with DeepSpeed's optimizer and parameters on the host, 24.5 s without."""
    given_setting = judged(framework="deepspeed", global_batch_size=64)
    offload = {"optimizer": 1.0, "parameters": 1.0}
    there, here = (prediction(given_setting, shares) for shares in (offload, {}))
    assert there.breakdown_seconds.offload == pytest.approx(2.5, rel=0.25)
    assert there.step_time_seconds - here.step_time_seconds == pytest.approx(2.5, rel=0.25)


def test_parts_add_up_to_the_step_with_the_offload_among_them() -> None:
    told = prediction(judged(), {**ALL, "activations": 1.0})
    parts = told.breakdown_seconds
    whole = sum(getattr(parts, word) for word in parts.__dataclass_fields__)
    assert whole == pytest.approx(told.step_time_seconds)
    assert parts.offload > 0


def test_a_host_holds_16_bytes_for_each_parameter_that_it_updates() -> None:
    """ZeRO-Offload: FP32 parameter, momentum, variance and gradient; the device keeps two bytes."""
    told = prediction(judged(), {"optimizer": 1.0}, zero_stage=2)
    parameters = 13.016e9
    assert told.host[0].memory_bytes == pytest.approx(16 * parameters, rel=0.01)
    assert told.memory[0].breakdown_bytes.parameters == pytest.approx(2 * parameters, rel=0.01)
    assert told.memory[0].breakdown_bytes.optimizer == told.memory[0].breakdown_bytes.gradients == 0


def test_what_a_host_cannot_hold_does_not_fit() -> None:
    small = with_host(judged(), memory_bytes=200e9)
    told = prediction(small, {"optimizer": 1.0}, zero_stage=2)
    assert not told.host[0].fits
    assert not told.fits
    assert all(stage.fits for stage in told.memory)


@pytest.mark.parametrize(("sequence_length", "shows"), [(8192, True), (32768, True), (131072, False)])
def test_activations_are_copied_behind_long_attention(*, sequence_length: int, shows: bool) -> None:
    """MEMO: over 25 GB/s the copies of a 7B model's layers hide from about 55,000 tokens on."""
    given_setting = judged(model="llama-2-7b", sequence_length=sequence_length, global_batch_size=8)
    forward = costs(given_setting, {"activations": 1.0}).layers[0].forward
    assert (forward.causes.get(Cause.OFFLOAD, 0) > 0) == shows


def test_two_layers_of_activations_are_on_the_device_when_all_wait_on_the_host() -> None:
    there, here = (costs(judged(), shares).layers[0] for shares in ({"activations": 1.0}, {}))
    assert there.saved_bytes == 0
    assert there.host_saved_bytes == here.saved_bytes
    assert there.working_bytes == here.working_bytes + 2 * here.saved_bytes


def test_parameters_go_up_again_for_backward_only_where_they_were_dropped() -> None:
    given_setting = judged(framework="pytorch", sequence_length=128, global_batch_size=8)
    dropped, kept = (
        costs(given_setting, {"optimizer": 1.0}, zero_stage=stage).layers[0].backward.causes[Cause.OFFLOAD]
        for stage in (3, 2)
    )
    assert dropped > kept


def test_nothing_is_known_of_no_host() -> None:
    bare = judged()
    (group,) = bare.cluster.node_groups
    cluster = replace(bare.cluster, node_groups=(replace(group, host=None),))
    request = replace(request_of(replace(bare, cluster=cluster)), profiles=tuple(A100))
    result = evaluate_plan(request, ShortPlan(zero_stage=3, offload={"optimizer": 1.0}))
    assert result.status is Status.ILLEGAL
    assert [violation.pointer for violation in result.violations] == ["/plan/offload"]


@pytest.mark.parametrize(
    ("mesh", "nodes"),
    [
        (Mesh(data_parallel=4, pipeline_parallel=4), {((0, 4), (1, 4)), ((2, 4), (3, 4))}),
        (Mesh(data_parallel=16, pipeline_parallel=2), {((0, 8),), ((1, 8),)}),
        (
            Mesh(
                data_parallel=8,
                pipeline_parallel=2,
                rank_order=("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel"),
            ),
            {((0, 4), (1, 4))},
        ),
        (
            Mesh(data_parallel=2, tensor_parallel=3, pipeline_parallel=4),
            {((0, 6), (1, 2)), ((1, 4), (2, 4)), ((2, 2), (3, 6))},
        ),
    ],
)
def test_nodes_hold_the_stages_that_the_order_of_ranks_puts_there(
    mesh: Mesh, nodes: set[tuple[tuple[int, int], ...]]
) -> None:
    assert set(stages_of_nodes(mesh, devices_per_node=8)) == nodes


def test_the_stages_of_a_node_share_its_memory() -> None:
    assert DEFAULT_RANK_ORDER[-1] == "pipeline_parallel"
    told = prediction(
        judged(framework="megatron-core"), {"optimizer": 1.0}, zero_stage=1, pipeline_parallel=4
    )
    whole = prediction(judged(framework="megatron-core"), {"optimizer": 1.0}, zero_stage=1)
    assert told.host[0].memory_bytes == pytest.approx(whole.host[0].memory_bytes, rel=0.01)


def test_shares_of_nothing_cost_nothing() -> None:
    given_setting = judged()
    plain = layout_of(given_setting, {})
    assert plain.on_host == HostShares()
    assert not plain.offloads
    assert costs(given_setting, {}).layers[0].host_bytes == 0
