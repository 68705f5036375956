"""An evened split is as fast, fits, holds the same layers and is no less even."""

from hypothesis import assume, given
from hypothesis import strategies as st

from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.search.evening import evened
from tests.unit.planner.cost.problems import ALTERNATING, problems
from tests.unit.planner.search.enumeration import every_split

plain = problems(max_stages=3, max_layers=6, max_options=2, schedules=ALTERNATING).filter(
    lambda problem: problem.shape.virtual_stages == 1
)


@given(problem=plain, data=st.data())
def test_an_evened_split_is_as_good_and_no_less_even(problem: PipelineProblem, data: st.DataObject) -> None:
    splits = list(every_split(problem))
    assume(splits)
    given_split = data.draw(st.sampled_from(splits))
    costs = chunk_costs(problem, given_split)
    stages = range(problem.shape.num_stages)
    assume(all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages))
    taken = replay(problem, costs).makespan_ns
    even = evened(problem, given_split, makespan_ns=taken)
    after = chunk_costs(problem, even)
    assert replay(problem, after).makespan_ns <= taken
    assert all(stage_peak_bytes(problem, after, stage) <= problem.limit_bytes for stage in stages)
    assert [sum(column) for column in zip(*even, strict=True)] == [
        sum(column) for column in zip(*given_split, strict=True)
    ]
    works = [[cost.forward_ns + cost.backward_ns for cost in entry] for entry in (costs, after)]
    spreads = [max(work) - min(work) for work in works]
    assert spreads[1] <= spreads[0]
