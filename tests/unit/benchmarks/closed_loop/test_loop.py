import pytest

from benchmarks.closed_loop.loop import Effort, affordable
from benchmarks.closed_loop.plans import Predicted, legal_plans
from benchmarks.closed_loop.scenarios import SMALL
from planner.strategy import ShortPlan
from tests.unit.benchmarks.closed_loop.test_figures import REQUEST, predicted


@pytest.fixture(scope="module")
def legal() -> list[Predicted]:
    return legal_plans(REQUEST, SMALL)


def effort(seconds: float) -> Effort:
    return Effort(kernel_seconds=0, link_seconds=0, run_seconds=seconds, rounds=3)


def in_order(plans: list[Predicted]) -> list[Predicted]:
    return sorted(plans, key=lambda plan: plan.prediction.step_time_seconds)


def test_all_plans_run_where_there_is_time(legal: list[Predicted]) -> None:
    assert affordable(legal, legal[0], effort(1e9)) == in_order(legal)


def test_rivals_of_the_quickest_run_and_some_of_all_others(legal: list[Predicted]) -> None:
    steps = 3 * 2 + 2 + 2
    whole = steps * sum(plan.prediction.step_time_seconds for plan in legal)
    kept = affordable(legal, in_order(legal)[0], effort(whole / 4))
    numbers = [in_order(legal).index(plan) for plan in kept]

    assert steps * sum(plan.prediction.step_time_seconds for plan in kept) <= whole / 4
    quick = next(number for number, place in enumerate(numbers) if number != place)
    assert quick >= 3
    assert max(numbers) > 0.8 * len(legal)


def test_the_chosen_plan_runs_in_any_case() -> None:
    first, other = (
        predicted(ShortPlan(data_parallel=2, zero_stage=0)),
        predicted(ShortPlan(tensor_parallel=2)),
    )
    assert affordable([first], other, effort(0.0)) == [other, first]
