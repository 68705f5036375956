"""The short way to a step's length and critical path gives what the replay gives."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.pipeline import PipelineProblem, chunk_costs
from planner.cost.replay import replay
from planner.cost.schedules import PipelineShape
from planner.search.course import course, skippable
from planner.strategy import ScheduleName
from tests.unit.planner.cost.problems import assignments, problems
from tests.unit.planner.cost.test_replay import even_problem


@st.composite
def long_problems(draw: st.DrawFn) -> PipelineProblem:
    """Draw a problem whose steps repeat themselves many times."""
    problem = draw(problems())
    shape = problem.shape
    rounds = draw(st.integers(1, 30))
    more = rounds * shape.num_stages if shape.virtual_stages > 1 else draw(st.integers(1, 80))
    return replace(problem, shape=replace(shape, num_micro_batches=more))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_course_is_as_long_as_the_replay(data: st.DataObject) -> None:
    problem = data.draw(long_problems())
    costs = chunk_costs(problem, data.draw(assignments(problem)))
    found = course(problem, costs)
    assert found.makespan_ns == replay(problem, costs).makespan_ns
    assert found.path.length_ns(costs) == found.makespan_ns


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_the_path_of_a_course_bounds_every_other_plan(data: st.DataObject) -> None:
    problem = data.draw(long_problems())
    path = course(problem, chunk_costs(problem, data.draw(assignments(problem)))).path
    other = chunk_costs(problem, data.draw(assignments(problem)))
    assert path.length_ns(other) <= replay(problem, other).makespan_ns


def test_most_of_a_long_step_is_skipped() -> None:
    shape = PipelineShape(
        schedule=ScheduleName.INTERLEAVED, num_stages=8, virtual_stages=12, num_micro_batches=192
    )
    assert skippable(shape, 3) == 19
    problem = even_problem(stages=8, virtual_stages=12, micro_batches=192)
    costs = chunk_costs(problem, ((1,),) * 96)
    assert course(problem, costs).makespan_ns == replay(problem, costs).makespan_ns
