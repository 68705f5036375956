from typing import Any

import pytest

from api.pages.plan_words import (
    axis_tiles,
    choice_tiles,
    plan_line,
    plan_sentences,
    recomputation_words,
    world_size,
)
from tests.unit.api.pages.documents import plan


def _single_device() -> dict[str, Any]:
    document = plan()
    document["mesh"] |= {
        "data_parallel": 1,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "sequence_parallel": False,
    }
    document["batch"] = {"micro_batch_size": 8, "num_micro_batches": 1}
    document["schedule"] = {"name": "1f1b", "virtual_stages": 1, "interleave_group_size": None}
    document["sharding"] |= {"zero_stage": 0, "optimizer": 1}
    return document


def test_the_axes_stand_innermost_first_and_their_product_is_the_devices() -> None:
    tiles = axis_tiles(plan())
    assert [tile.name for tile in tiles] == ["TP", "CP", "DP", "PP"]
    product = 1
    for tile in tiles:
        product *= int(tile.value)
    assert product == world_size(plan()) == 64


def test_tiles_say_what_belongs_to_a_degree() -> None:
    notes = {tile.key: tile.note for tile in axis_tiles(plan())}
    assert notes["tensor_parallel"] == "tensor parallel, sequence parallel"
    assert notes["pipeline_parallel"] == "pipeline parallel, 5 chunks each"


def test_the_other_choices_stand_beside_the_axes() -> None:
    choices = {tile.key: (tile.value, tile.note) for tile in choice_tiles(plan())}
    assert choices == {
        "micro_batch_size": ("1 × 256", "samples × passes"),
        "schedule": ("interleaved", ""),
        "zero_stage": ("1", "optimizer sharded"),
        "recompute": ("selective", "core attention"),
    }


def test_experts_have_a_tile_only_where_they_are_parallel() -> None:
    experts = plan()
    experts["mesh"]["expert_parallel"] = 8
    assert "expert_parallel" in {tile.key for tile in choice_tiles(experts)}
    assert "EP 8" in plan_line(experts)


def test_a_plan_fits_on_one_line() -> None:
    assert plan_line(plan()) == "TP 4 · PP 4 × 5 · DP 4 · micro-batch 1 · ZeRO-1 · selective recomputation"
    assert plan_line(_single_device()).startswith("one device · micro-batch 8 · ZeRO-0")


def test_a_plan_reads_as_sentences() -> None:
    assert plan_sentences(plan()) == (
        "4 copies of the model, each on 16 devices, share the batch.",
        "Every layer is split over 4 devices, and the sequence between them.",
        "The layers are spread over 4 stages, each in 5 chunks, in interleaved order.",
        "A step is 256 passes of 1 sample through each replica.",
        "ZeRO-1: optimizer states sharded over 4 devices.",
        "Selective recomputation (core attention).",
    )
    assert plan_sentences(_single_device())[:2] == (
        "One copy of the model on one device.",
        "A step is 1 pass of 8 samples through each replica.",
    )


def test_what_replicas_send_is_said_where_it_is_no_default() -> None:
    sent = plan()
    sent["sharding"] |= {"gather_dtype": "int8", "reduce_dtype": "int4"}
    assert "ZeRO-1 · int8 gathers · int4 reductions · " in plan_line(sent)
    assert "int8 gathers between replicas." in plan_sentences(sent)
    assert "int4 reductions between replicas." in plan_sentences(sent)


def test_a_sequence_that_is_split_is_said() -> None:
    split = plan()
    split["mesh"]["context_parallel"] = 2
    assert "Every sequence is split over 2 devices." in plan_sentences(split)
    notes = {tile.key: tile.note for tile in axis_tiles(split)}
    assert notes["context_parallel"] == "context parallel, ring"


@pytest.mark.parametrize(("mode", "words"), [("none", "no recomputation"), ("full", "full recomputation")])
def test_one_mode_of_recomputation_is_said_alone(mode: str, words: str) -> None:
    document = plan()
    for stage in document["stages"]:
        for chunk in stage["chunks"]:
            for layers in chunk["layers"]:
                layers["recompute"] = {"mode": mode}
    assert recomputation_words(document) == words


def test_several_modes_of_recomputation_are_counted_in_layers() -> None:
    document = plan()
    document["stages"][0]["chunks"][0]["layers"][1]["recompute"] = {"mode": "full"}
    assert recomputation_words(document) == "recomputation: selective in 76 layers, full in 4 layers"


def test_what_rests_on_the_host_is_said() -> None:
    document = plan()
    assert "offload" not in plan_line(document)
    for stage in document["stages"]:
        for chunk in stage["chunks"]:
            for layers in chunk["layers"]:
                layers["offload"] = {"optimizer": {"cpu": 0.5, "nvme": 0.0}, "parameters": {"cpu": 0.0}}
    assert plan_line(document).endswith(" · offload")
    assert plan_sentences(document)[-1] == "On the host: optimizer states (50%)."
    tile = {tile.key: tile for tile in choice_tiles(document)}["offload"]
    assert (tile.value, tile.note) == ("optimizer", "50% on the host")
