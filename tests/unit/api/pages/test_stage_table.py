from api.pages.stage_table import stage_rows
from tests.unit.api.pages.documents import plan, prediction

GIB = "\N{NO-BREAK SPACE}GiB"


def test_a_stage_says_its_devices_layers_and_memory() -> None:
    first, *_, last = stage_rows(plan(), prediction())
    assert (first.devices, first.num_layers, first.peak) == ("0–15", 20, f"65.6{GIB}")
    assert first.chunks[:2] == ("embedding, decoder 0–3", "decoder 16–19")
    assert last.chunks[-1] == "decoder 76–79, norm, head"
    assert first.recompute == "selective (core attention)"


def test_every_layer_of_the_model_stands_in_one_stage() -> None:
    assert sum(row.num_layers for row in stage_rows(plan(), None)) == 80


def test_a_plan_without_prediction_has_no_memory() -> None:
    assert {row.peak for row in stage_rows(plan(), None)} == {""}


def test_layers_that_differ_in_strategy_alone_are_one_range_of_layers() -> None:
    document = plan()
    document["stages"][0]["chunks"][1]["layers"] = [
        {"kind": "decoder", "first": 16, "count": 1, "recompute": {"mode": "full"}},
        {"kind": "decoder", "first": 17, "count": 3, "recompute": {"mode": "none"}},
    ]
    row = stage_rows(document, None)[0]
    assert row.chunks[1] == "decoder 16–19"
    assert row.recompute == "selective (core attention) in 16, full in 1, none in 3"


def test_a_layer_alone_and_one_of_another_model_are_named() -> None:
    document = plan()
    document["stages"][0]["chunks"][1]["layers"] = [
        {"kind": "decoder", "first": 16, "count": 1},
        {"kind": "decoder", "first": 0, "count": 2, "of": "reference"},
    ]
    row, plain = stage_rows(document, None)[0], stage_rows(plan(), None)[0]
    assert row.chunks[1] == "decoder 16, reference decoder 0–1"
    assert row.num_layers == plain.num_layers - 3


def test_devices_are_ranges_with_strides_and_the_groups_where_there_are_several() -> None:
    document = plan()
    document["stages"][0]["placement"][0]["devices"] = [
        {"first": 0, "count": 4, "stride": 8},
        {"first": 40, "count": 1, "stride": 1},
    ]
    assert stage_rows(document, None)[0].devices == "0–24 by 8, 40"
    document["stages"][1]["placement"][0]["node_group"] = "b"
    assert stage_rows(document, None)[1].devices == "b: 16–31"
