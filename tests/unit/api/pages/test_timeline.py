from itertools import pairwise

from api.pages.timeline import timeline_drawing
from planner.strategy import ScheduleName
from tests.unit.api.pages.timelines import event, timeline

MAX_DRAWING_BYTES = 1_000_000


def test_nothing_is_drawn_of_nothing() -> None:
    assert timeline_drawing([]) is None
    assert timeline_drawing([event(0, "forward", 0.0, 0.0)]) is None


def test_a_step_of_thousands_of_passes_stays_small() -> None:
    drawing = timeline_drawing(timeline(num_stages=64, num_micro_batches=512))
    assert drawing is not None
    size = sum(map(len, drawing.paths.values())) + 60 * len(drawing.numbers)
    assert size < MAX_DRAWING_BYTES


def test_what_is_left_out_is_said() -> None:
    short, long = (timeline_drawing(timeline(num_micro_batches=count)) for count in (8, 256))
    assert short is not None
    assert long is not None
    assert short.left_out == ""
    assert "of steady passes" in long.left_out


def test_the_legend_names_what_is_drawn_and_no_more() -> None:
    plain, interleaved = (
        timeline_drawing(timeline(virtual_stages=chunks, num_micro_batches=8)) for chunks in (1, 3)
    )
    assert plain is not None
    assert interleaved is not None
    assert [entry.text for entry in plain.legend] == [
        "forward",
        "backward",
        "optimizer",
        "parameter gather",
        "gradient reduction",
    ]
    assert interleaved.legend[0].text == "forward, by chunk"
    assert interleaved.legend[0].classes == ("f0", "f1", "f2")


def test_gradients_of_weights_that_are_passes_of_their_own_have_a_colour() -> None:
    drawing = timeline_drawing(timeline(schedule=ScheduleName.ZB_H1))
    assert drawing is not None
    assert [entry.text for entry in drawing.legend][:3] == [
        "forward",
        "gradients of inputs",
        "gradients of weights",
    ]
    assert {number.css for number in drawing.numbers} == {"f", "b", "w"}


def test_labels_stand_apart_however_low_the_rows_are() -> None:
    drawing = timeline_drawing(timeline(num_stages=128, num_micro_batches=4))
    assert drawing is not None
    baselines = [y for _, y in drawing.labels]
    assert min(after - before for before, after in pairwise(baselines)) >= 11


def test_ticks_name_different_moments() -> None:
    drawing = timeline_drawing(timeline(num_micro_batches=256))
    assert drawing is not None
    texts = [tick.text for tick in drawing.ticks]
    assert len(set(texts)) == len(texts)
    assert drawing.ticks[0].anchor == "start"
