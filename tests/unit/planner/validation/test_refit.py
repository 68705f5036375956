"""Parameters set neutral and fitted again, on made-up runs whose steps the planner predicts exactly."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from planner.parameters import PARAMETERS, Parameter
from planner.validation.ablation import ablations
from planner.validation.evaluation import Evaluator
from planner.validation.refit import parameters_without
from planner.validation.runs import TimedRun, log_errors, sampled, timed_runs
from tests.unit.planner.validation.published import row

PACE = next(one for one in PARAMETERS if (one.program, one.effect) == ("megatron-bridge-25", "products"))
SLOWER = 1.3
CELLS = [
    {"gbs": gbs, "mbs": mbs, "tp": tp, "dp": dp}
    for gbs in ("64", "128")
    for mbs in ("1", "2")
    for tp, dp in (("1", "8"), ("2", "4"))
]


def with_value(value: float) -> tuple[Parameter, ...]:
    return tuple(replace(one, value=value) if one == PACE else one for one in PARAMETERS)


@cache
def runs() -> tuple[TimedRun, ...]:
    """Return runs of two sources, in steps that take as long as a program of slow products takes."""
    outcomes = [
        Evaluator().outcome(row(framework="Megatron-Bridge 25.11", source=source, **cells))
        for source in ("one", "two")
        for cells in CELLS
    ]
    asked = timed_runs(outcomes)
    seconds = np.exp(log_errors(asked, with_value(SLOWER))) * [run.seconds for run in asked]
    return tuple(replace(run, seconds=float(took)) for run, took in zip(asked, seconds, strict=True))


def test_errors_are_those_of_the_parameters_that_are_given() -> None:
    assert log_errors(runs(), with_value(SLOWER)) == pytest.approx(0.0, abs=1e-9)
    assert min(log_errors(runs(), with_value(2 * SLOWER))) > 0.3


def test_a_parameter_that_pays_costs_something_when_set_neutral() -> None:
    found = {one.parameter: one for one in ablations(runs(), with_value(SLOWER))}
    worth = found[replace(PACE, value=SLOWER)]
    assert worth.runs == len(runs())
    assert worth.error.p90 == pytest.approx(0.0, abs=1e-9)
    assert worth.neutral.median > 0.1
    assert worth.neutral.p90 > worth.neutral.median


def test_parameters_of_programs_that_no_run_rests_on_are_not_asked_for() -> None:
    assert {one.parameter.program for one in ablations(runs())} <= {
        "megatron-bridge-25",
        "megatron-bridge",
        "megatron-core",
    }


def test_a_source_is_predicted_by_what_others_show() -> None:
    refitted = parameters_without("one", runs())
    others = [run for run in runs() if run.source == "two"]
    assert np.median(np.abs(log_errors(others, refitted))) < 0.02


def test_without_others_a_program_takes_the_values_of_its_kind() -> None:
    alone = [run for run in runs() if run.source == "one"]
    values = {(one.program, one.effect): one.value for one in parameters_without("one", alone)}
    assert values["megatron-bridge-25", "products"] == 1.0
    assert values["nanotron", "memory_passes"] != 1.0


def test_what_no_run_shows_forgets_the_source_that_is_left_out() -> None:
    values = {(one.program, one.effect): one.value for one in parameters_without("one", runs())}
    assert values["megatron-bridge", "sink_attention"] == 1.0


def test_what_a_program_is_a_fork_of_tells_more_than_nothing() -> None:
    asked = [
        Evaluator().outcome(row(framework=f"Megatron-Bridge {release} NeMo Container", source=source))
        for release, source in (("26.08", "one"), ("26.02", "two"))
    ]
    values = {(one.program, one.effect): one.value for one in parameters_without("one", timed_runs(asked))}
    assert values["megatron-bridge-graphs", "sink_attention"] == values["megatron-bridge", "sink_attention"]
    assert values["megatron-bridge", "sink_attention"] > 1.0


def test_what_rests_on_no_runs_stays_where_a_source_of_runs_is_left_out() -> None:
    outcome = Evaluator().outcome(
        row(
            framework="Megatron-DeepSpeed",
            source="one",
            device="A100",
            inter_link="Omni-Path 4x100Gb/node (Jean Zay)",
        )
    )
    left = parameters_without("one", timed_runs([outcome]))
    found = {(one.program, one.effect): one.value for one in left}
    told = {(one.program, one.effect): one.value for one in PARAMETERS}
    assert found["megatron-deepspeed", "launch_seconds"] == told["megatron-deepspeed", "launch_seconds"]
    assert found["bigscience", "tensor_parallel"] == 1.0


def test_a_sample_is_spread_over_all_runs() -> None:
    assert sampled(list(runs()), 4)[0] == runs()[0]
    assert len(sampled(list(runs()), 4)) == 4
    assert len(sampled(list(runs()), 100)) == len(runs())


def test_attention_on_another_generation_tells_more_than_nothing() -> None:
    asked = [
        Evaluator().outcome(
            row(framework=framework, source=source, device=device, zero_stage=zero, tp="1", dp="8")
        )
        for framework, source, device, zero in (
            ("llm-foundry/Composer FSDP", "one", "A100", "3"),
            ("nanotron", "two", "H100", "1"),
        )
    ]
    values = {(one.program, one.effect): one.value for one in parameters_without("one", timed_runs(asked))}
    assert values["composer", "attention_ampere"] == values["nanotron", "attention_hopper"]


def test_how_much_of_experts_traffic_shows_is_known_of_no_other_program() -> None:
    outcome = Evaluator().outcome(row(framework="Megatron-Bridge 26.02", source="one"))
    left = parameters_without("one", timed_runs([outcome]))
    found = {one.effect: one for one in left if one.program == "megatron-bridge"}
    assert found["expert_parallel"].value == found["expert_parallel"].neutral
