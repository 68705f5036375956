from collections import Counter

from benchmarks.closed_loop.plans import short_plans
from benchmarks.closed_loop.rounds import can_run
from benchmarks.closed_loop.scenarios import SMALL
from planner.strategy import RecomputeMode
from profiler.trial.order import read_order
from tests.unit.benchmarks.closed_loop.test_figures import REPLICAS, SPLIT


def test_plans_use_all_ranks_and_every_kind_of_parallelism() -> None:
    plans = list(short_plans(SMALL, ranks=4))
    degrees = {(plan.data_parallel, plan.tensor_parallel, plan.pipeline_parallel) for plan in plans}
    assert degrees == {(4, 1, 1), (2, 2, 1), (2, 1, 2), (1, 4, 1), (1, 2, 2), (1, 1, 4)}
    modes = Counter(plan.recompute.mode for plan in plans if plan.recompute)
    assert set(modes) == set(RecomputeMode)
    assert {plan.zero_stage for plan in plans} == {None, 0, 1, 2, 3}


def test_a_plan_is_said_in_a_line() -> None:
    assert REPLICAS.words == "DP 2, ZeRO 0, 1 x 4"
    assert (REPLICAS.kind, SPLIT.kind) == ("data", "tensor")


def test_a_trial_reads_the_order_of_a_plan() -> None:
    order = read_order(REPLICAS.order())
    assert order.global_batch_size == SMALL.global_batch_size
    assert len(order.layers) == SMALL.depth + 3
    assert can_run(REPLICAS)
