"""How many layers stages may hold leaves out no plan that is quick enough."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings

from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.cost.schedules import PipelineShape
from planner.search.rows import Integers
from planner.search.span_master import first_limits
from planner.search.span_stages import Limits, stage_sizes
from planner.search.spans import SpanFinder, Spans
from planner.strategy import ScheduleName
from tests.unit.planner.cost.test_replay import even_problem
from tests.unit.planner.search.enumeration import every_assignment
from tests.unit.planner.search.test_span_master import SLOW, few_chunks

MOST_PLANS = 40


@settings(max_examples=40, suppress_health_check=SLOW)
@given(problem=few_chunks)
def test_every_plan_is_within_the_numbers_of_its_time(problem: PipelineProblem) -> None:
    shape, finder = problem.shape, SpanFinder(problem)
    runs = [finder.runs(chunk) for chunk in range(shape.num_chunks)]
    for assignment in islice(every_assignment(problem), MOST_PLANS):
        costs = chunk_costs(problem, assignment)
        if any(stage_peak_bytes(problem, costs, i) > problem.limit_bytes for i in range(shape.num_stages)):
            continue
        limits = first_limits(problem, replay(problem, costs).makespan_ns)
        found = stage_sizes(shape, runs, limits, num_layers=problem.num_layers)
        assert found is not None
        layers = np.array([sum(counts) for counts in assignment])
        held = np.array([layers[shape.own(stage)].sum() for stage in range(shape.num_stages)])
        assert (found.low <= held).all()
        assert (held <= found.high).all()


@pytest.mark.parametrize(("limit", "expected"), [(1, None), (2, ([1, 1], [3, 3])), (3, ([1, 1], [3, 3]))])
def test_numbers_that_no_limit_takes_together_are_no_way(
    limit: int, expected: tuple[list[int], list[int]] | None
) -> None:
    """Four layers on two stages of one to three: any split of them adds 2."""
    shape = PipelineShape(
        schedule=ScheduleName.ONE_FORWARD_ONE_BACKWARD, num_stages=2, virtual_stages=1, num_micro_batches=1
    )
    problem = replace(even_problem(stages=2, virtual_stages=1, micro_batches=1), sequence=(0,) * 4)
    spans = [SpanFinder(problem).runs(chunk).only(np.array([0, 1, 2])) for chunk in range(shape.num_chunks)]
    added = ({1: 0, 2: 1, 3: 1}, {1: 1, 2: 1, 3: 2})

    def amounts(own: Spans, chunk: int) -> Integers:
        sizes = (own.end - own.start).tolist()
        return np.array([[added[chunk][size]] for size in sizes], dtype=np.int64)

    limits = [Limits(range(2), amounts, np.array([limit], dtype=np.int64))]
    found = stage_sizes(shape, spans, limits, num_layers=4)
    assert (found and (found.low.tolist(), found.high.tolist())) == expected
