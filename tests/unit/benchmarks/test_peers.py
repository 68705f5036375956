"""Plans in a peer's vocabulary: every word is there, they agree with each other and with the plan."""

from collections.abc import Mapping
from dataclasses import asdict, replace

import pytest

from benchmarks.peers import REQUESTS, SYSTEMS, PeerRequest, answer, execution, plan_request, unsaid
from planner.frameworks import framework_by_name
from planner.job import AttentionKind
from planner.planning import PlanRequest, evaluate_plan
from planner.strategy import (
    LayerOffload,
    Offload,
    Recompute,
    RecomputeMode,
    Schedule,
    ScheduleName,
    ShortPlan,
    TrainingPlan,
)

WORDS: Mapping[str, type] = {
    "num_procs": int,
    "tensor_par": int,
    "pipeline_par": int,
    "data_par": int,
    "tensor_par_net": int,
    "pipeline_par_net": int,
    "data_par_net": int,
    "batch_size": int,
    "microbatch_size": int,
    "datatype": str,
    "fused_activation": bool,
    "attention_type": str,
    "activation_recompute": str,
    "pipeline_interleaving": int,
    "optimizer_sharding": bool,
    "tensor_par_comm_type": str,
    "tensor_par_overlap": str,
    "seq_par_ag_redo": bool,
    "data_par_overlap": bool,
    "weight_offload": bool,
    "activations_offload": bool,
    "optimizer_offload": bool,
    "training": bool,
}
"""What Llm.Execution of calculon/llm/llm.py reads."""
SMALL = REQUESTS[0]


def check(said: Mapping[str, object], *, num_blocks: int, num_devices: int) -> None:
    """Assert what Llm.Execution and Llm.compile assert, and the networks of a system of nodes of 8."""
    assert {word: type(value) for word, value in said.items()} == WORDS
    sizes = {word: value for word, value in said.items() if isinstance(value, int)}
    tensor, pipeline, data = (sizes[word] for word in ("tensor_par", "pipeline_par", "data_par"))
    assert tensor * pipeline * data == sizes["num_procs"] <= num_devices
    assert sizes["batch_size"] % (data * sizes["microbatch_size"]) == 0
    turns = sizes["pipeline_interleaving"]
    assert turns == 1 or pipeline > 1
    assert -(-num_blocks // pipeline) % turns == 0
    assert said["activation_recompute"] in {"full", "attn_only", "none"}
    assert said["tensor_par_comm_type"] in {"ar", "p2p_rs_ag", "rs_ag"}
    assert not said["seq_par_ag_redo"] or (
        said["tensor_par_comm_type"] == "rs_ag" and said["activation_recompute"] != "full"
    )
    assert not said["optimizer_sharding"] or data > 1
    assert not said["data_par_overlap"] or data > 1
    on_node = 1
    for axis, degree in (("tensor", tensor), ("pipeline", pipeline), ("data", data)):
        assert sizes[f"{axis}_par_net"] in {0, 1}
        on_node *= degree if sizes[f"{axis}_par_net"] == 0 else 1
    assert 8 % on_node == 0


SHALLOW = replace(
    REQUESTS[4],
    application=replace(REQUESTS[4].application, num_blocks=22),
    num_devices=16,
    batch_size=32,
)
"""One whose best plan has two stages of two chunks, of 11 layers together."""


@pytest.mark.parametrize(("peer", "is_best"), [(SMALL, True), (SHALLOW, False)])
def test_a_peer_s_request_is_answered_in_its_words(peer: PeerRequest, is_best: bool) -> None:  # noqa: FBT001
    found = answer(peer)
    check(asdict(found.execution), num_blocks=peer.application.num_blocks, num_devices=peer.num_devices)
    assert found.execution.batch_size == peer.batch_size
    assert found.status == "optimal"
    assert (found.step_time_seconds == found.best_of_all_seconds) == is_best
    assert found.step_time_seconds >= found.best_of_all_seconds
    assert found.system == SYSTEMS[peer.cluster]


def test_all_five_requests_are_legal_ones_of_the_stated_sizes() -> None:
    sizes = {peer.name: plan_request(peer).workload.parameters / 1e9 for peer in REQUESTS}
    expected = {"22B": 22, "175B": 175, "1T on 3,072": 1008, "1T on 4,096": 1008, "70B": 65}
    assert sizes == pytest.approx(expected, rel=0.01)


def said(short: ShortPlan, *, attention: AttentionKind = AttentionKind.UNFUSED) -> dict[str, object]:
    """Return a flat plan of the small request in the peer's words, checked."""
    plan, request = planned(short)
    found = execution(
        plan, cluster=request.cluster, framework=framework_by_name("megatron-core"), attention=attention
    )
    check(asdict(found), num_blocks=SMALL.application.num_blocks, num_devices=SMALL.num_devices)
    return asdict(found)


def planned(short: ShortPlan) -> tuple[TrainingPlan, PlanRequest]:
    request = plan_request(SMALL)
    plan = evaluate_plan(request, short).plan
    assert plan is not None
    return plan, request


@pytest.mark.parametrize(
    ("short", "words"),
    [
        (
            ShortPlan(tensor_parallel=8, sequence_parallel=True),
            {"tensor_par": 8, "data_par": 8, "tensor_par_comm_type": "rs_ag", "seq_par_ag_redo": True},
        ),
        (
            ShortPlan(tensor_parallel=4, pipeline_parallel=2, sequence_parallel=False, zero_stage=0),
            {"tensor_par_comm_type": "p2p_rs_ag", "seq_par_ag_redo": False, "optimizer_sharding": False},
        ),
        (
            ShortPlan(pipeline_parallel=4, virtual_stages=3),
            {"tensor_par_comm_type": "ar", "pipeline_interleaving": 3, "pipeline_par_net": 1},
        ),
        (
            ShortPlan(tensor_parallel=2, data_parallel=4, sequence_parallel=False),
            {"num_procs": 8, "tensor_par_net": 0, "data_par_net": 0, "pipeline_par_net": 0},
        ),
        (
            ShortPlan(
                tensor_parallel=8, sequence_parallel=True, recompute=Recompute(mode=RecomputeMode.FULL)
            ),
            {"activation_recompute": "full", "seq_par_ag_redo": False},
        ),
        (
            ShortPlan(recompute=Recompute(mode=RecomputeMode.SELECTIVE)),
            {"activation_recompute": "attn_only", "data_par": 64, "data_par_net": 1},
        ),
        (ShortPlan(tensor_parallel=8, pipeline_parallel=8), {"data_par_overlap": False}),
    ],
)
def test_a_plan_s_choices_have_their_words(short: ShortPlan, words: Mapping[str, object]) -> None:
    found = said(short)
    assert {word: found[word] for word in words} == words


def test_a_fused_core_is_attention_computed_again() -> None:
    assert said(ShortPlan())["activation_recompute"] == "none"
    assert said(ShortPlan(), attention=AttentionKind.FLASH)["activation_recompute"] == "attn_only"


@pytest.mark.parametrize(
    "short",
    [
        ShortPlan(context_parallel=2),
        ShortPlan(zero_stage=3),
    ],
)
def test_what_no_word_says_is_refused(short: ShortPlan) -> None:
    request = plan_request(SMALL)
    flash = replace(request, job=replace(request.job, attention=AttentionKind.FLASH))
    plan = evaluate_plan(flash, short).plan
    assert plan is not None
    with pytest.raises(ValueError, match="Calculon"):
        said_of(plan, flash)


def said_of(plan: TrainingPlan, request: PlanRequest) -> None:
    execution(
        plan,
        cluster=request.cluster,
        framework=framework_by_name("megatron-core"),
        attention=AttentionKind.FLASH,
    )


def test_other_schedules_and_mixed_recomputation_are_refused() -> None:
    plan, request = planned(ShortPlan(pipeline_parallel=2))
    with pytest.raises(ValueError, match="gpipe"):
        said_of(replace(plan, schedule=Schedule(name=ScheduleName.GPIPE)), request)
    stage = plan.stages[0]
    chunk = stage.chunks[0]
    full = [replace(layer, recompute=Recompute(mode=RecomputeMode.FULL)) for layer in chunk.layers]
    mixed = replace(stage, chunks=(replace(chunk, layers=tuple(full)),))
    with pytest.raises(ValueError, match="alike"):
        said_of(replace(plan, stages=(mixed, *plan.stages[1:])), request)


def test_what_is_rounded_is_said() -> None:
    uneven, request = planned(ShortPlan(pipeline_parallel=2, layers_per_stage=(23, 25)))
    assert list(unsaid(uneven)) == ["chunks hold 23 to 25 layers, in Calculon equally many"]
    plan, request = planned(ShortPlan())
    (stage,) = plan.stages
    (chunk,) = stage.chunks
    half = LayerOffload(optimizer=Offload(cpu=0.5))
    moved = replace(chunk, layers=tuple(replace(layer, offload=half) for layer in chunk.layers))
    offloaded = replace(plan, stages=(replace(stage, chunks=(moved,)),))
    assert list(unsaid(offloaded)) == ["50% to 50% of optimizer are offloaded, in Calculon all"]
    found = execution(
        offloaded,
        cluster=request.cluster,
        framework=framework_by_name("megatron-core"),
        attention=AttentionKind.UNFUSED,
    )
    assert (found.optimizer_offload, found.weight_offload) == (True, False)
