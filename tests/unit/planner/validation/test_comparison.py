import pytest

from planner.validation.comparison import (
    Comparison,
    fit_comparison,
    memory_comparison,
    step_time_comparison,
)
from planner.validation.evaluation import Evaluator
from tests.unit.planner.validation.published import row


def test_an_error_is_a_share_of_the_measurement() -> None:
    found = Comparison(predicted=1.5, measured=2.0, interval=(1.2, 1.8))
    assert found.relative_error == pytest.approx(-0.25)
    assert not found.is_covered
    assert found.scaled(2).is_covered == found.is_covered


def test_twice_as_much_is_as_far_as_half_as_much() -> None:
    twice = Comparison(predicted=2.0, measured=1.0, interval=(1.0, 3.0))
    half = Comparison(predicted=1.0, measured=2.0, interval=(1.0, 3.0))
    assert twice.distance == pytest.approx(half.distance)


def test_what_was_not_measured_is_not_compared() -> None:
    outcome = Evaluator().outcome(row(step_time_s="", oom="no"))
    assert step_time_comparison(outcome) is None
    assert memory_comparison(outcome) is None
    assert fit_comparison(outcome) == (True, True)


def test_memory_seen_from_outside_counts_more() -> None:
    evaluator = Evaluator()
    inside = memory_comparison(evaluator.outcome(row(peak_mem_gib="20")))
    outside = memory_comparison(evaluator.outcome(row(peak_mem_gib="20", notes="as seen on the node")))
    assert inside is not None
    assert outside is not None
    assert inside.predicted < outside.predicted
    assert inside.interval[0] < inside.predicted < inside.interval[1]


def test_a_fit_on_a_device_of_unknown_memory_proves_nothing() -> None:
    outcome = Evaluator().outcome(row(device="A100", device_mem_gib="", intra_link="NVLink3"))
    assert step_time_comparison(outcome) is not None
    assert fit_comparison(outcome) is None


def test_a_log_of_the_first_rank_is_held_against_the_first_stage() -> None:
    run = {"pp": "2", "tp": "1", "dp": "4", "mbs": "16", "seq_parallel": "", "peak_mem_gib": "40"}
    logged = Evaluator().outcome(row(framework="nanotron", **run))
    found = memory_comparison(logged)
    assert logged.prediction is not None
    assert found is not None
    first, last = (stage.peak_reserved_bytes for stage in logged.prediction.memory)
    # One micro-batch makes the step: the last stage holds the logits beside as many layers.
    assert found.predicted == first < last


def test_outputs_that_a_waiting_host_would_not_withhold_widen_an_interval_downwards() -> None:
    run = {"tp": "4", "dp": "2", "peak_mem_gib": "20"}
    unsure = memory_comparison(Evaluator().outcome(row(framework="nanotron", **run)))
    assert unsure is not None
    low, high = unsure.interval
    assert unsure.predicted - low > 1.3 * (high - unsure.predicted)


def test_replicas_of_nanotron_average_beside_backward_unless_they_share_states() -> None:
    run = {"framework": "nanotron", "gpus": "64", "tp": "1", "dp": "64", "mbs": "1", "seq_parallel": ""}
    outcomes = (Evaluator().outcome(row(inter_link="EFA", zero_stage=stage, **run)) for stage in ("0", "1"))
    visible = [one.prediction.breakdown_seconds.data_parallel for one in outcomes if one.prediction]
    whole, sharded = visible
    assert whole < 0.5 * sharded


def test_sends_that_stall_between_many_devices_reach_an_interval_upwards() -> None:
    run = {"framework": "nanotron", "pp": "2", "tp": "1", "mbs": "1", "seq_parallel": "", "inter_link": "EFA"}
    steady, far = (
        step_time_comparison(Evaluator().outcome(row(gpus=str(2 * dp), dp=str(dp), gbs=str(8 * dp), **run)))
        for dp in (32, 64)
    )
    assert steady is not None
    assert far is not None
    # 2 sends of each of 8 micro-batches.
    assert far.interval[1] - far.predicted > 16 * 0.3 > steady.interval[1] - steady.predicted
