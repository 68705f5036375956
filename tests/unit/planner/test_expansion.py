"""Plans go out in full form and come back as the same layout and layers."""

from dataclasses import replace

import pytest

from planner.errors import InvalidRequest
from planner.expansion import expand_short_plan, zero_sharding
from planner.framework import FULL_RECOMPUTE, SELECTIVE_RECOMPUTE
from planner.frameworks import FRAMEWORKS
from planner.full_plan import full_plan, read_full_plan
from planner.strategy import (
    Chunk,
    HostShares,
    LayerOffload,
    LayerRange,
    Offload,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    ShortPlan,
    Stage,
    TrainingPlan,
    ZeroStage,
)
from tests.unit.planner.settings import setting

SHORT_PLANS = [
    ShortPlan(),
    ShortPlan(tensor_parallel=4, sequence_parallel=True, recompute=FULL_RECOMPUTE),
    ShortPlan(pipeline_parallel=4, virtual_stages=4, zero_stage=0),
    ShortPlan(pipeline_parallel=4, data_parallel=2, layers_per_stage=(7, 9, 9, 7)),
    ShortPlan(pipeline_parallel=2, virtual_stages=2, layers_per_stage=(15, 17)),
    ShortPlan(zero_stage=3),
]
FOLDED_PLANS = [
    ShortPlan(pipeline_parallel=4, schedule=Schedule(name=ScheduleName.ZB_V)),
    ShortPlan(
        pipeline_parallel=4,
        schedule=Schedule(name=ScheduleName.DUALPIPE_V),
        layers_per_stage=(7, 9, 9, 7),
    ),
    ShortPlan(
        pipeline_parallel=2,
        data_parallel=4,
        schedule=Schedule(name=ScheduleName.ZB_V, virtual_stages=2),
        layers_per_stage=(7, 8, 9, 8),
    ),
]


def expanded(short: ShortPlan) -> TrainingPlan:
    judged = setting()
    fixed = expand_short_plan(short, judged)
    assert fixed.assignment is not None
    return full_plan(fixed.layout, fixed.assignment, judged)


@pytest.mark.parametrize("short", SHORT_PLANS)
def test_a_full_plan_reads_back_as_what_it_was_written_from(short: ShortPlan) -> None:
    judged = setting()
    fixed = expand_short_plan(short, judged)
    again = read_full_plan(expanded(short), judged)
    assert (again.layout, again.assignment) == (fixed.layout, fixed.assignment)
    assert again.violations == ()


@pytest.mark.parametrize("short", FOLDED_PLANS)
def test_a_folded_plan_goes_down_the_stages_and_back_up(short: ShortPlan) -> None:
    judged = setting(framework="any")
    fixed = expand_short_plan(short, judged)
    assert fixed.assignment is not None
    plan = full_plan(fixed.layout, fixed.assignment, judged)
    again = read_full_plan(plan, judged)
    assert (again.layout, again.assignment) == (fixed.layout, fixed.assignment)
    assert again.violations == ()
    first = plan.stages[0]
    assert [entry.kind for entry in first.chunks[0].layers][:1] == ["embedding"]
    assert [entry.kind for entry in first.chunks[1].layers][-2:] == ["norm", "head"]
    down, up = ([stage.chunks[turn].layers for stage in plan.stages] for turn in (0, 1))
    decoders = [e for layers in (*down, *up[::-1]) for e in layers if e.kind == "decoder"]
    assert [entry.first for entry in decoders] == [
        sum(entry.count for entry in decoders[:number]) for number in range(len(decoders))
    ]
    if short.layers_per_stage and len(short.layers_per_stage) == len(plan.stages):
        held = [
            sum(e.count for chunk in stage.chunks for e in chunk.layers if e.kind == "decoder")
            for stage in plan.stages
        ]
        assert tuple(held) == short.layers_per_stage


@pytest.mark.parametrize("short", SHORT_PLANS)
def test_every_layer_and_every_device_is_placed_once(short: ShortPlan) -> None:
    plan = expanded(short)
    layers = [
        (entry.kind, entry.first + offset)
        for stage in plan.stages
        for chunk in stage.chunks
        for entry in chunk.layers
        for offset in range(entry.count)
    ]
    assert len(layers) == len(set(layers)) == 32 + 3
    devices = [
        run.first + i * run.stride
        for stage in plan.stages
        for place in stage.placement
        for run in place.devices
        for i in range(run.count)
    ]
    assert sorted(devices) == list(range(plan.mesh.world_size))


def test_selective_without_modules_means_those_that_the_framework_takes() -> None:
    selective = Recompute(mode=RecomputeMode.SELECTIVE)
    plan = expanded(ShortPlan(recompute=selective))
    assert plan.stages[0].chunks[0].layers[1].recompute == SELECTIVE_RECOMPUTE
    bare = replace(plan, stages=tuple(_recomputing(stage, selective) for stage in plan.stages))
    assert read_full_plan(bare, setting()).layout == read_full_plan(plan, setting()).layout
    assert read_full_plan(bare, setting()).assignment == read_full_plan(plan, setting()).assignment


def _recomputing(stage: Stage, recompute: Recompute) -> Stage:
    return replace(
        stage,
        chunks=tuple(
            replace(chunk, layers=tuple(replace(layers, recompute=recompute) for layers in chunk.layers))
            for chunk in stage.chunks
        ),
    )


def test_flat_words_of_batch_and_sharding_are_heard() -> None:
    short = ShortPlan(
        zero_stage=3, extra={"parameters": 2, "reshard_after_forward": False, "num_micro_batches": 7}
    )
    layout = expand_short_plan(short, setting()).layout
    assert (layout.sharding.parameters, layout.sharding.reshard_after_forward) == (2, False)
    assert layout.sharding.optimizer == layout.mesh.data_parallel
    assert layout.batch.num_micro_batches == 7


def test_layers_that_are_missing_are_a_violation() -> None:
    plan = expanded(ShortPlan())
    short_of_one = (
        LayerRange(kind="embedding", first=0, count=1),
        LayerRange(kind="decoder", first=0, count=31),
    )
    stage = Stage(
        stage=0, placement=plan.stages[0].placement, chunks=(Chunk(virtual_stage=0, layers=short_of_one),)
    )
    cut = TrainingPlan(
        mesh=plan.mesh, batch=plan.batch, schedule=plan.schedule, sharding=plan.sharding, stages=(stage,)
    )
    violations = read_full_plan(cut, setting()).violations
    assert [violation.pointer for violation in violations] == ["/plan/stages"]
    assert "decoder 31" in violations[0].rule


def with_offload(plan: TrainingPlan, kind: str, offload: LayerOffload) -> TrainingPlan:
    """Return a plan of one stage whose layers of a kind are offloaded so."""
    (stage,) = plan.stages
    (chunk,) = stage.chunks
    layers = tuple(replace(entry, offload=offload) if entry.kind == kind else entry for entry in chunk.layers)
    return replace(plan, stages=(replace(stage, chunks=(replace(chunk, layers=layers),)),))


def test_all_layers_keep_the_same_shares_of_their_states_on_the_host() -> None:
    moved = with_offload(expanded(ShortPlan()), "decoder", LayerOffload(optimizer=Offload(cpu=0.5)))
    with pytest.raises(InvalidRequest) as refused:
        read_full_plan(moved, setting())
    assert refused.value.pointer.endswith("/layers/1/offload")


def test_a_share_on_drives_cannot_be_priced_yet() -> None:
    moved = with_offload(expanded(ShortPlan()), "decoder", LayerOffload(optimizer=Offload(nvme=0.5)))
    with pytest.raises(InvalidRequest) as refused:
        read_full_plan(moved, setting())
    assert refused.value.pointer.endswith("/layers/1/offload")
    assert "NVMe" in refused.value.message


@pytest.mark.parametrize(
    ("framework", "given", "meant"),
    [
        ("megatron-core", {"optimizer": 0.5}, HostShares(optimizer=0.5)),
        ("deepspeed", {"optimizer": 0.5}, HostShares(optimizer=0.5, gradients=0.5)),
        ("pytorch", {"optimizer": 1.0}, HostShares(optimizer=1.0, parameters=1.0, gradients=1.0)),
        ("pytorch", {"parameters": 1.0}, HostShares(optimizer=1.0, parameters=1.0, gradients=1.0)),
        ("any", {"optimizer": 0.5, "gradients": 0.0}, HostShares(optimizer=0.5)),
    ],
)
def test_shares_that_are_not_said_are_as_the_framework_has_them(
    framework: str, given: dict[str, float], meant: HostShares
) -> None:
    fixed = expand_short_plan(ShortPlan(offload=given), setting(framework=framework))
    assert fixed.layout.on_host == meant


def test_what_is_on_the_host_comes_back_from_the_full_form() -> None:
    judged = setting(framework="any")
    short = ShortPlan(offload={"optimizer": 0.5, "parameters": 0.25, "activations": 0.75})
    fixed = expand_short_plan(short, judged)
    assert fixed.assignment is not None
    again = read_full_plan(full_plan(fixed.layout, fixed.assignment, judged), judged)
    assert (again.layout, again.assignment) == (fixed.layout, fixed.assignment)
    assert again.layout.activations == (0.75,)


def test_zero_stages_shard_more_and_more() -> None:
    framework = FRAMEWORKS["megatron-core"]
    sizes = [
        (s.parameters, s.gradients, s.optimizer)
        for s in (zero_sharding(stage, replicas=8, framework=framework) for stage in ZeroStage)
    ]
    assert sizes == [(1, 1, 1), (1, 1, 8), (1, 8, 8), (8, 8, 8)]


def test_nanotron_fills_stages_by_weight_unless_told_how() -> None:
    judged = setting(framework="nanotron")
    assert expand_short_plan(ShortPlan(pipeline_parallel=2), judged).assignment == ((18,), (14,))
    told = ShortPlan(pipeline_parallel=2, layers_per_stage=(16, 16))
    assert expand_short_plan(told, judged).assignment == ((16,), (16,))


def test_a_module_may_have_the_name_that_the_framework_gives_it() -> None:
    asked = Recompute(mode=RecomputeMode.SELECTIVE, modules=("layernorm", "mlp", "norm"))
    (option,) = expand_short_plan(ShortPlan(recompute=asked), setting()).layout.recompute
    assert option.modules == ("norm", "mlp")
    (option,) = expand_short_plan(ShortPlan(recompute=asked), setting(framework="any")).layout.recompute
    assert option.modules == ("layernorm", "mlp", "norm")


@pytest.mark.parametrize(
    ("framework", "expert_parallel", "cut"),
    [("megatron-core", 1, 1), ("maxtext", 1, 2), ("torchtitan", 1, 2), ("torchtitan", 4, 1), ("any", 1, 1)],
)
def test_experts_of_which_nothing_is_said_are_cut_as_the_framework_does(
    framework: str, expert_parallel: int, cut: int
) -> None:
    plan = ShortPlan(tensor_parallel=2, expert_parallel=expert_parallel)
    mesh = expand_short_plan(plan, setting(model="mixtral-8x7b", framework=framework)).layout.mesh
    assert mesh.expert_tensor_parallel == cut
    dense = expand_short_plan(replace(plan, expert_parallel=1), setting(framework=framework)).layout.mesh
    assert dense.expert_tensor_parallel == 1


def test_a_pipeline_has_the_schedule_that_the_framework_has() -> None:
    plan = ShortPlan(pipeline_parallel=2)
    names = {
        name: expand_short_plan(plan, setting(framework=name)).layout.schedule.name
        for name in ("megatron-core", "maxtext")
    }
    assert names == {
        "megatron-core": ScheduleName.ONE_FORWARD_ONE_BACKWARD,
        "maxtext": ScheduleName.GPIPE,
    }


def test_layers_that_the_framework_would_not_spread_so_are_no_plan() -> None:
    told = ShortPlan(pipeline_parallel=2, layers_per_stage=(16, 16))
    pointers = {
        name: [violation.pointer for violation in expand_short_plan(told, setting(framework=name)).violations]
        for name in ("nanotron", "maxtext", "pytorch")
    }
    assert pointers == {"nanotron": ["/plan/layers_per_stage"], "maxtext": [], "pytorch": []}
