from typing import Any

import pytest

from planner.strategy import RecomputeMode
from profiler.trial.errors import PlanCannotRun
from profiler.trial.order import read_order
from tests.unit.profiler.trial.orders import document, order

ON_HOST = {word: {"cpu": 1.0, "nvme": 0.0} for word in ("parameters", "gradients", "optimizer")}


def test_the_layers_of_a_chunk_stand_in_execution_order_with_their_recomputation() -> None:
    found = order(recompute={"mode": "full", "modules": []})
    (chunk,) = found.chunks
    assert [placed.layer.kind for placed in chunk] == ["embedding", "decoder", "decoder", "norm", "head"]
    assert [placed.number for placed in found.layers] == [0, 1, 2, 3, 4]
    assert [placed.recompute.mode for placed in chunk].count(RecomputeMode.FULL) == 2
    assert found.global_batch_size == 4


def test_chunks_stand_turn_by_turn_and_stage_by_stage() -> None:
    def stage(number: int, *layers: dict[str, Any]) -> dict[str, Any]:
        chunks = [{"virtual_stage": turn, "layers": [entry]} for turn, entry in enumerate(layers)]
        return {"stage": number, "chunks": chunks}

    def one(kind: str, first: int = 0) -> dict[str, Any]:
        return {"kind": kind, "first": first, "count": 1}

    given = document(pipeline_parallel=2)
    given["plan"]["schedule"] = {"name": "interleaved", "virtual_stages": 2}
    given["plan"]["stages"] = [
        stage(0, one("embedding"), one("decoder", 1)),
        stage(1, one("decoder"), one("head")),
    ]
    found = read_order(given)
    assert [chunk[0].number for chunk in found.chunks] == [0, 1, 2, 4]
    assert [found.chunks_of(stage) for stage in (0, 1)] == [(0, 2), (1, 3)]
    given["plan"]["schedule"]["name"] = "zb-v"
    folded = read_order(given)
    assert [chunk[0].number for chunk in folded.chunks] == [0, 1, 4, 2]
    assert [folded.chunks_of(stage) for stage in (0, 1)] == [(0, 3), (1, 2)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"context_parallel": 2}, "context parallel"),
        ({"expert_parallel": 2}, "other ranks than those of data parallel"),
        (
            {"data_parallel": 2, "expert_parallel": 2, "sharding": {"zero_stage": 1, "optimizer": 2}},
            "beside states that are sharded",
        ),
        ({"expert_tensor_parallel": 2}, "experts cut over tensor parallel ranks"),
        ({"job": {"precision": "fp8"}}, "precision fp8"),
        ({"job": {"parameter_dtype": "fp16"}}, "parameters in fp16"),
        ({"job": {"optimizer": "muon"}}, "optimizer muon"),
        ({"recompute": {"mode": "selective", "modules": ["mlp"]}}, "recomputation"),
        ({"range": {"offload": {"optimizer": {"cpu": 0.5, "nvme": 0.0}}}}, "together and whole"),
        ({"range": {"offload": {"optimizer": {"cpu": 1.0, "nvme": 0.0}}}}, "together and whole"),
        ({"range": {"offload": {"optimizer": {"cpu": 0.0, "nvme": 0.5}}}}, "nothing on NVMe"),
        ({"range": {"offload": {"activations": {"cpu": 1.0}}}}, "no activations on the host"),
        ({"range": {"offload": ON_HOST}, "sharding": {"zero_stage": 3}}, "but those of all layers"),
        ({"range": {"mesh": {"tensor_parallel": 1}}}, "a mesh of their own"),
        ({"data_parallel": 4, "sharding": {"zero_stage": 1, "optimizer": 2}}, "groups of several sizes"),
        (
            {
                "data_parallel": 4,
                "sharding": {"zero_stage": 3, "parameters": 2, "gradients": 4, "optimizer": 4},
            },
            "groups of several sizes",
        ),
        ({"sharding": {"experts": {"zero_stage": 1}}}, "experts"),
        ({"sharding": {"zero_stage": 3, "gather_dtype": "int8"}}, "gathered in a format of their own"),
        ({"sharding": {"zero_stage": 3, "reduce_dtype": "int4"}}, "reduced in a format but bf16"),
        ({"layers": []}, "no plan to run"),
    ],
)
def test_what_a_trial_does_not_have_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(PlanCannotRun, match=reason):
        order(**changes)


def on_host(**sharding: int) -> dict[str, Any]:
    """An order of which all states rest on the host."""
    given = document(data_parallel=2, sharding=sharding)
    for entry in given["plan"]["stages"][0]["chunks"][0]["layers"]:
        entry["offload"] = ON_HOST
    return given


def test_states_of_all_layers_may_rest_on_the_host_where_gradients_are_sharded() -> None:
    sizes = {"parameters": 2, "gradients": 2, "optimizer": 2}
    assert read_order(on_host(zero_stage=3, **sizes)).on_host
    assert not order().on_host
    with pytest.raises(PlanCannotRun, match="ZeRO stage 2 or 3"):
        read_order(on_host(zero_stage=1, optimizer=2))


def test_a_document_without_a_plan_is_refused() -> None:
    with pytest.raises(PlanCannotRun, match="plan"):
        read_order({"layers": [], "job": {}})
