"""What a layout is said to need at least is what its most frugal plan needs."""

from dataclasses import replace

from hypothesis import given, settings

from planner.cost.pipeline import PipelineProblem
from planner.search.master import Excluded, solve
from planner.search.shortage import layout_need
from planner.strategy import Batch, Layout, Mesh, Schedule, Sharding
from tests.unit.planner.cost.problems import ALTERNATING
from tests.unit.planner.search.oracle import best_plan, small_problems

LAYOUT = Layout(
    mesh=Mesh(),
    batch=Batch(micro_batch_size=1, num_micro_batches=1),
    schedule=Schedule(),
    sharding=Sharding(),
    recompute=(),
)


@settings(max_examples=200, deadline=None)
@given(small_problems(schedules=ALTERNATING).filter(lambda problem: problem.shape.virtual_stages == 1))
def test_the_need_is_that_of_the_most_frugal_plan(problem: PipelineProblem) -> None:
    need = layout_need(LAYOUT, problem)
    assert need.needed_bytes == best_plan(problem).needed_bytes
    assert need.available_bytes == problem.limit_bytes


@settings(max_examples=100, deadline=None)
@given(small_problems(schedules=ALTERNATING).filter(lambda problem: problem.shape.virtual_stages == 1))
def test_one_byte_less_than_the_need_does_not_fit(problem: PipelineProblem) -> None:
    need = int(layout_need(LAYOUT, problem).needed_bytes)
    assert isinstance(solve(replace(problem, limit_bytes=need - 1)), Excluded)
    assert not isinstance(solve(replace(problem, limit_bytes=need)), Excluded)
