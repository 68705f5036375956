from dataclasses import replace

import pytest

from benchmarks.closed_loop.figures import Trialled, choices, goals, overall, rows_of
from benchmarks.closed_loop.measurements import Measurement
from benchmarks.closed_loop.network import GIGABIT
from benchmarks.closed_loop.plans import Predicted
from benchmarks.closed_loop.rounds import Ran, low_quantile
from benchmarks.closed_loop.scenarios import SMALL, Scenario
from planner.cluster import Cluster, Level, NodeGroup
from planner.devices import device_by_name
from planner.job import Constraints, Precision, SolverLimits
from planner.planning import PlanRequest, evaluate_plan
from planner.profile import builtin_profile
from planner.strategy import ShortPlan

DEVICE = device_by_name("A100-SXM4-80GB", pointer="")
LEVEL = Level(name="node", devices=2, bandwidth_bytes_per_second=1e11, latency_seconds=1e-6)
REQUEST = PlanRequest(
    workload=SMALL.workload,
    cluster=Cluster(
        name="bench",
        node_groups=(
            NodeGroup(name="here", num_nodes=1, devices_per_node=2, device=DEVICE, levels=(LEVEL,)),
        ),
    ),
    job=replace(SMALL.job(), precision=Precision.BF16),
    constraints=Constraints(),
    solver=SolverLimits(),
    profiles=(builtin_profile("a100-sxm-80gb/published"),),
)


def predicted(short: ShortPlan) -> Predicted:
    result = evaluate_plan(REQUEST, short)
    assert result.plan is not None
    assert result.prediction is not None
    return Predicted(model=SMALL, plan=result.plan, prediction=result.prediction)


REPLICAS = predicted(ShortPlan(data_parallel=2, zero_stage=0, micro_batch_size=4))
SPLIT = predicted(ShortPlan(tensor_parallel=2, micro_batch_size=8))


def ran(
    plan: Predicted, *, time_factor: float = 1.0, peak_factor: float = 1.0, is_control: bool = False
) -> Ran:
    seconds = time_factor * plan.prediction.step_time_seconds
    peaks = [peak_factor * stage.peak_allocated_bytes for stage in plan.prediction.memory]
    measured = Measurement(
        order=plan.order(),
        is_control=is_control,
        seconds=[seconds, seconds, 3 * seconds],
        passes_seconds=0.9 * seconds,
        update_seconds=0.1 * seconds,
        peak_bytes=peaks,
        process_bytes=1e9,
    )
    return Ran(predicted=plan, measured=measured)


def trialled(*runs: Ran) -> Trialled:
    scenario = Scenario(ranks=2, link=GIGABIT, models=(SMALL,))
    return Trialled(scenario=scenario, model=SMALL, chosen=REPLICAS, ran=runs, num_legal=2)


def test_a_step_takes_what_it_takes_undisturbed() -> None:
    assert low_quantile([1.0, 1.0, 1.0, 9.0, 9.0]) == 1.0


def test_plans_that_run_as_predicted_meet_every_goal() -> None:
    figures = overall([trialled(ran(REPLICAS), ran(SPLIT), ran(SPLIT, is_control=True))])
    assert figures["time_median_error"] == pytest.approx(0.0)
    assert figures["plans"] == 2
    assert all(row["met"] for row in goals(figures))


@pytest.mark.parametrize(
    ("runs", "missed"),
    [
        ((ran(REPLICAS, time_factor=1.5), ran(SPLIT, time_factor=1.5)), "step time"),
        ((ran(REPLICAS, peak_factor=1.5), ran(SPLIT, peak_factor=1.5)), "peak"),
        ((ran(REPLICAS, time_factor=100.0), ran(SPLIT, time_factor=1.0)), "regret"),
    ],
)
def test_what_runs_otherwise_misses_its_goal(runs: tuple[Ran, ...], missed: str) -> None:
    rows = goals(overall([trialled(*runs)]))
    assert any(missed in row["goal"] for row in rows if not row["met"])


def test_a_plan_that_repeats_badly_allows_for_its_noise() -> None:
    runs = (ran(REPLICAS, time_factor=1.3), ran(SPLIT, time_factor=1.3))
    controls = (ran(SPLIT, is_control=True), ran(SPLIT, time_factor=2.0, is_control=True))
    quiet, noisy = trialled(*runs), trialled(*runs, *controls)
    assert not goals(overall([quiet]))[0]["met"]
    assert goals(overall([noisy]))[0]["met"]
    assert noisy.noise > 0.2


def test_controls_of_several_calls_are_held_against_their_own_plan() -> None:
    controls = [ran(plan, is_control=True) for plan in (REPLICAS, REPLICAS, SPLIT, SPLIT)]
    assert REPLICAS.prediction.step_time_seconds != SPLIT.prediction.step_time_seconds
    assert trialled(ran(REPLICAS), ran(SPLIT), *controls).noise == 0.0


def test_choices_stand_beside_what_was_fastest() -> None:
    (choice,) = choices([trialled(ran(REPLICAS, time_factor=100.0), ran(SPLIT))])
    assert (choice["chosen"], choice["best"]) == (REPLICAS.words, SPLIT.words)
    assert not choice["same_kind"]
    assert choice["link"] == "1 Gbit"


def test_every_figure_of_a_run_is_kept() -> None:
    row, control = rows_of(trialled(ran(REPLICAS), ran(REPLICAS, is_control=True)))
    assert row["measured_seconds"] == pytest.approx(row["predicted_seconds"])
    assert row["measured_peak_bytes"] == row["predicted_peak_bytes"]
    assert control["is_control"]
