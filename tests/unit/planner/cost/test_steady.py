"""A step played with rounds left out equals the step played in full."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import chunk_costs
from planner.cost.replay import replay
from planner.cost.schedules import stage_orders
from planner.cost.steady import play_step, step_ends
from tests.unit.planner.cost.long_steps import long_problems
from tests.unit.planner.cost.problems import assignments, problems
from tests.unit.planner.cost.test_replay import even_problem

several = settings(max_examples=200, deadline=None)


@several
@given(st.data())
def test_a_long_step_takes_as_long_as_in_full(data: st.DataObject) -> None:
    problem = data.draw(long_problems())
    costs = chunk_costs(problem, data.draw(assignments(problem)))
    assert play_step(problem, costs).makespan_ns == replay(problem, costs).makespan_ns


@several
@given(st.data())
def test_the_ends_of_a_step_are_those_of_its_replay(data: st.DataObject) -> None:
    problem = data.draw(st.one_of(problems(), long_problems()))
    costs = chunk_costs(problem, data.draw(assignments(problem)))
    ends, full = step_ends(problem, costs), replay(problem, costs)
    orders = stage_orders(problem.shape)
    assert ends.makespan_ns == full.makespan_ns
    assert ends.stage_end_ns == full.stage_end_ns
    assert (ends.update_end_ns, ends.gather_end_ns) == (full.update_end_ns, full.gather_end_ns)
    assert ends.first_chunks == tuple(order[0].chunk for order in orders)
    assert ends.first_end_ns == tuple(full.end_ns(order[0]) for order in orders)
    assert ends.last_end_ns == tuple(full.end_ns(order[-1]) for order in orders)


@several
@given(st.data())
def test_the_path_is_as_long_as_the_step(data: st.DataObject) -> None:
    problem = data.draw(st.one_of(problems(), long_problems()))
    costs = chunk_costs(problem, data.draw(assignments(problem)))
    step = play_step(problem, costs)
    assert step.path.length_ns(costs) == step.makespan_ns


@several
@given(st.data())
def test_the_path_of_one_plan_bounds_every_other_plan(data: st.DataObject) -> None:
    problem = data.draw(st.one_of(problems(), long_problems()))
    path = play_step(problem, chunk_costs(problem, data.draw(assignments(problem)))).path
    other = chunk_costs(problem, data.draw(assignments(problem)))
    assert path.length_ns(other) <= replay(problem, other).makespan_ns


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(("stages", "virtual", "micro_batches"), [(8, 1, 300), (4, 2, 200), (5, 1, 250)])
def test_long_ways_repeat_after_several_rounds(
    stages: int, virtual: int, micro_batches: int, *, blocks: bool
) -> None:
    """Transfers longer than passes: the micro-batches under way set the pace, and rounds differ."""
    problem = even_problem(stages=stages, virtual_stages=virtual, micro_batches=micro_batches)
    problem = replace(problem, transfer_ns=7, transfer_blocks=blocks)
    costs = chunk_costs(problem, tuple((1 + chunk % 2,) for chunk in range(problem.shape.num_chunks)))
    step = play_step(problem, costs)
    assert step.makespan_ns == replay(problem, costs).makespan_ns == step.path.length_ns(costs)


def test_equal_stages_of_very_many_micro_batches_take_the_textbook_time() -> None:
    """Far too many to play one by one: (m + p - 1)(f + b)."""
    problem = even_problem(stages=8, virtual_stages=1, micro_batches=10**9)
    costs = chunk_costs(problem, ((1,),) * 8)
    assert play_step(problem, costs).makespan_ns == 6 * (10**9 + 7)
