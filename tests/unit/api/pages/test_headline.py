from api.pages.headline import headline
from tests.unit.api.pages.documents import prediction

NBSP = "\N{NO-BREAK SPACE}"


def test_the_headline_says_time_throughput_utilisation_and_memory() -> None:
    shown = {figure.key: (figure.number, figure.unit, figure.note) for figure in headline(prediction())}
    assert shown == {
        "step_time": ("137.6", "s", f"80{NBSP}% interval 130.7–145.9{NBSP}s"),
        "throughput": ("60,960", "tokens/s", f"952.4 per device, 7.441{NBSP}samples/s"),
        "mfu": ("44.6", "%", f"441{NBSP}TFLOP/s per device"),
        "memory": ("65.6", "GiB", f"82{NBSP}% of 79.6{NBSP}GiB, stage 0"),
    }


def test_a_workload_without_a_sequence_is_counted_in_samples() -> None:
    document = prediction() | {"tokens_per_second": None, "tokens_per_second_per_device": None}
    throughput = next(figure for figure in headline(document) if figure.key == "throughput")
    assert (throughput.number, throughput.unit) == ("7.441", "samples/s")


def test_memory_is_left_out_where_none_is_predicted() -> None:
    assert [figure.key for figure in headline(prediction() | {"memory": []})] == [
        "step_time",
        "throughput",
        "mfu",
    ]
