"""Longer mixed chains over several chunks per stage: the answer is the best of all splits, and whole."""

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from planner.cost.pipeline import PipelineProblem
from planner.cost.schedules import PipelineShape
from planner.strategy import ScheduleName
from tests.unit.planner.search.enumeration import every_assignment
from tests.unit.planner.search.test_one_piece import larger_problem, layer_class
from tests.unit.planner.search.test_span_master import check_is_solved, quickest_ns

MOST_PLANS = 4000
"""Plans that are tried one by one."""


@pytest.mark.no_cover
@pytest.mark.parametrize("number", range(40))
def test_no_split_of_a_longer_chain_is_faster(number: int) -> None:
    problem = longer_chain(number)
    tried = list(islice(every_assignment(problem), MOST_PLANS + 1))
    assert len(tried) <= MOST_PLANS
    check_is_solved(problem, quickest_ns(problem, tried))


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
