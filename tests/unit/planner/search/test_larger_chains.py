"""Longer mixed chains over several chunks per stage: the answer is the best of all splits, and whole."""

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from planner.cost.pipeline import PipelineProblem, chunk_costs, stage_peak_bytes
from planner.cost.replay import replay
from planner.cost.schedules import PipelineShape
from planner.search.master import Excluded, Solution
from planner.search.span_master import solve_in_order
from planner.strategy import ScheduleName
from tests.unit.planner.search.enumeration import every_assignment
from tests.unit.planner.search.test_one_piece import larger_problem, layer_class
from tests.unit.planner.search.test_span_master import check_is_real

MOST_PLANS = 4000
"""Plans that are tried one by one."""


@pytest.mark.no_cover
@pytest.mark.parametrize("number", range(40))
def test_no_split_of_a_longer_chain_is_faster(number: int) -> None:
    problem = longer_chain(number)
    tried = list(islice(every_assignment(problem), MOST_PLANS + 1))
    assert len(tried) <= MOST_PLANS
    stages, times = range(problem.shape.num_stages), []
    for assignment in tried:
        costs = chunk_costs(problem, assignment)
        if all(stage_peak_bytes(problem, costs, stage) <= problem.limit_bytes for stage in stages):
            times.append(replay(problem, costs).makespan_ns)
    solved = solve_in_order(problem)
    if not times:
        assert isinstance(solved, Excluded)
        return
    assert isinstance(solved, Solution)
    assert solved.makespan_ns == solved.lower_bound_ns == min(times)
    check_is_real(problem, solved)


def longer_chain(number: int) -> PipelineProblem:
    """Return the problem of a number: some layers of one kind, then those of another, as of many experts."""
    random = Random(1000 + number)  # noqa: S311 - the same every time, and no secret
    stages, layers = random.choice([(2, random.randint(8, 14)), (3, random.randint(8, 12))])
    first = random.randint(1, 4)
    return replace(
        larger_problem(number),
        shape=PipelineShape(
            schedule=ScheduleName.INTERLEAVED,
            num_stages=stages,
            virtual_stages=2,
            num_micro_batches=stages * random.choice([1, 2]),
        ),
        classes=tuple(layer_class(random, options=1) for _ in range(2)),
        sequence=(0,) * first + (1,) * (layers - first),
        limit_bytes=random.randint(2000, 6000),
    )
